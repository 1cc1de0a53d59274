"""What compiling costs, per workload and role, on a server with an empty cache: milliseconds by stage, kernels in all
and distinct, objects reused, worker CPU per distinct kernel."""

import collections

import torch
from _measure import emit, empty_server, parser, workloads

from stepone import records

# Records of the report that are stages of their own in the table; all others are "passes".
_STAGES = ("import", "fuse_and_plan", "package")


def compile_once(workload, endpoint):
    torch._dynamo.reset()
    records.reset()
    model = workload.build()
    runner = torch.compile(model, backend="stepone", options={"endpoint": endpoint})
    workload.loss(runner, workload.make_batch()).backward()
    return records.all_records()


def stages(answer):
    """Milliseconds by stage of one request."""
    total = collections.Counter()
    for row in answer["passes"]:
        total[row["name"] if row["name"] in _STAGES else "passes"] += row["milliseconds"]
    for kernel in answer["kernels"]:
        total["codegen"] += kernel["codegen_ms"]
        total["clang"] += kernel["compile_ms"]
        total["link"] += kernel["link_ms"]
    return total


def main():
    options = parser(__doc__).parse_args()
    with empty_server() as server:
        for name in options.workloads:
            by_role = collections.defaultdict(list)
            for record in compile_once(workloads.get(name), server.endpoint):
                if record.status != "compiled":
                    raise SystemExit(f"{name}: graph {record.number} is {record.status}: {record.eager_reason}")
                by_role[record.role].append(record.answer)
            for role, answers in by_role.items():
                report_role(name, role, answers)
            cpu = sum(answer["worker_cpu_ms"] for answers in by_role.values() for answer in answers)
            emit("compile", name, "all", "worker CPU", cpu, "ms")


def report_role(name, role, answers):
    total = sum((stages(answer) for answer in answers), collections.Counter())
    for stage, milliseconds in total.items():
        emit("compile", name, role, stage, milliseconds, "ms")
    kernels = [kernel for answer in answers for kernel in answer["kernels"]]
    compiled = sum(not kernel["reused"] for kernel in kernels)
    cpu = sum(answer["worker_cpu_ms"] for answer in answers)
    emit("compile", name, role, "kernels", len(kernels), "kernels")
    emit("compile", name, role, "distinct kernels", len({kernel["object"] for kernel in kernels}), "kernels")
    emit("compile", name, role, "objects reused", len(kernels) - compiled, "kernels")
    emit("compile", name, role, "worker CPU", cpu, "ms")
    if compiled:
        emit("compile", name, role, "worker CPU per compiled kernel", cpu / compiled, "ms")
    ops, fused = (sum(answer[key] for answer in answers) for key in ("graph_ops", "fused_ops"))
    moved, fused_moved = (sum(answer[key] for answer in answers) for key in ("bytes_moved", "fused_bytes_moved"))
    emit("compile", name, role, "ops fused", fused / max(ops, 1), "share")
    emit("compile", name, role, "bytes moved by fused kernels", fused_moved / max(moved, 1), "share")


if __name__ == "__main__":
    main()
