"""The arrows between folders, and LibTorch and protobuf never in one translation unit."""

import pathlib

from findings import Finding, code_files, includes

# folder of the including file -> folders and headers that it may include. The longest matching folder decides.
# "messages" stands for the generated headers stepone/v1/*.pb.h.
COMPILER = "compiler"
LEAVES = ("proto/digest.h", "proto/kernel_abi.h", "proto/status.h", "proto/str_cat.h")
ARROWS: dict[str, tuple[str, ...]] = {
    "proto": ("proto", "messages"),
    "cache": ("cache", "proto", "messages"),
    "compiler": (COMPILER, "proto", "messages"),
    "compiler/ir": ("compiler/ir", *LEAVES),
    "compiler/import": ("compiler/import", "compiler/ir", "proto", "messages"),
    "compiler/analysis": ("compiler/analysis", "compiler/ir", *LEAVES),
    "compiler/passes": ("compiler/passes", "compiler/analysis", "compiler/ir", *LEAVES),
    "compiler/loops": ("compiler/loops", "compiler/analysis", "compiler/ir", *LEAVES),
    "compiler/planning": ("compiler/planning", "compiler/loops", "compiler/analysis", "compiler/ir", *LEAVES),
    "compiler/codegen": ("compiler/codegen", "compiler/loops", "compiler/ir", *LEAVES),
    "compiler/build": ("compiler/build", "proto", "messages"),
    "compiler/autotune": ("compiler/autotune", "compiler/loops", "compiler/codegen", "compiler/build", "compiler/ir", *LEAVES),
    "compiler/external": ("compiler/external", "compiler/build", "proto", "messages"),
    "compiler/tools": (COMPILER, "proto", "messages"),
    "server": ("server", "cache", "proto", "messages"),
    "server/worker": ("server/worker", "server/worker_channel.h", "server/scheduling_class.h", "server/unique_fd.h", COMPILER, "cache", "proto", "messages"),
    "client": ("client", "cache", "proto", "messages"),
}
TORCH = ("torch/", "ATen/", "c10/")
PROTOBUF = ("google/protobuf/", "grpc/", "grpcpp/")
WORKER = "server/worker"


def target_of(header: str) -> str | None:
    """What a header counts as, or None for headers that are not ours."""
    if header.endswith((".pb.h",)) and header.startswith("stepone/"):
        return "messages"
    return header if header.split("/")[0] in {area.split("/")[0] for area in ARROWS} and "/" in header else None


def may_include(folder: str, target: str, allowed: tuple[str, ...]) -> bool:
    if target == WORKER or target.startswith(f"{WORKER}/"):
        return folder == WORKER  # "server" below does not open the second executable to the first
    return any(target == entry or target.startswith(f"{entry}/") for entry in allowed)


def check_arrows(root: pathlib.Path) -> list[Finding]:
    findings = []
    for path in code_files(root, ".h", ".cc", ".c", ".inc", ".def"):
        name = path.relative_to(root).as_posix()
        areas = [area for area in ARROWS if name.startswith(f"{area}/")]
        if not areas:
            continue
        area = max(areas, key=len)
        for line, header in includes(path):
            target = target_of(header)
            if target and not may_include(area, target, ARROWS[area]):
                findings.append(Finding(name, line, f"{area}/ may not include {header}: allowed are {', '.join(ARROWS[area])}"))
    return findings


def check_torch_and_protobuf(root: pathlib.Path) -> list[Finding]:
    """Follows project headers from each source, because a mix through two headers clashes just the same."""

    def reach(path: pathlib.Path, seen: dict[str, str], chain: str) -> None:
        for _, header in includes(path):
            if header in seen:
                continue
            seen[header] = f"{chain} -> {header}"
            if (root / header).is_file():
                reach(root / header, seen, seen[header])

    findings = []
    for path in code_files(root, ".cc"):
        name = path.relative_to(root).as_posix()
        seen: dict[str, str] = {}
        reach(path, seen, name)
        torch = [header for header in seen if header.startswith(TORCH)]
        protobuf = [header for header in seen if header.startswith(PROTOBUF) or header.endswith(".pb.h")]
        if torch and protobuf:
            findings.append(Finding(name, 1, f"sees LibTorch ({seen[torch[0]]}) and protobuf ({seen[protobuf[0]]})"))
    return findings


def find(root: pathlib.Path) -> list[Finding]:
    return check_arrows(root) + check_torch_and_protobuf(root)
