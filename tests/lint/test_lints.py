"""Each lint finds what it is there to find, on the right line, and leaves what is right alone."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import check_docs  # noqa: E402
import check_file_size  # noqa: E402
import check_format  # noqa: E402
import check_function_size  # noqa: E402
import check_getenv  # noqa: E402
import check_layering  # noqa: E402
import check_sources_listed  # noqa: E402
import check_words  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    def write(files: dict[str, str]) -> pathlib.Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def places(findings) -> list[tuple[str, int]]:
    return [(finding.path, finding.line) for finding in findings]


@pytest.mark.parametrize(
    ("source", "header"),
    [
        ("proto/a.cc", "cache/store.h"),
        ("cache/a.cc", "server/server.h"),
        ("server/a.cc", "compiler/compile.h"),
        ("server/a.cc", "server/worker/worker_loop.h"),
        ("server/worker/a.cc", "server/broker.h"),
        ("client/a.cc", "server/server.h"),
        ("compiler/a.cc", "cache/store.h"),
        ("compiler/ir/a.cc", "compiler/passes/pass.h"),
        ("compiler/ir/a.cc", "stepone/v1/graph.pb.h"),
        ("compiler/passes/a.cc", "compiler/loops/loop_nest.h"),
        ("compiler/build/a.cc", "compiler/ir/graph.h"),
        ("compiler/codegen/a.cc", "proto/artifact_file.h"),
    ],
)
def test_a_forbidden_arrow_is_found(tree, source, header):
    root = tree({source: f'// own\n#include "{header}"\n'})
    assert places(check_layering.find(root)) == [(source, 2)]


@pytest.mark.parametrize(
    ("source", "header"),
    [
        ("cache/a.cc", "proto/digest.h"),
        ("server/a.cc", "server/worker_pool.h"),
        ("server/a.cc", "stepone/v1/graph.pb.h"),
        ("server/worker/a.cc", "compiler/compile.h"),
        ("server/worker/a.cc", "server/worker_channel.h"),
        ("server/worker/a.cc", "server/worker/sandbox.h"),
        ("compiler/pipeline.cc", "compiler/passes/pass.h"),
        ("compiler/import/a.cc", "stepone/v1/graph.pb.h"),
        ("compiler/codegen/a.cc", "compiler/loops/loop_nest.h"),
        ("compiler/passes/a.cc", "proto/digest.h"),
        ("tests/unit/server/a_test.cc", "compiler/compile.h"),
        ("cache/a.cc", "vector"),
    ],
)
def test_a_drawn_arrow_is_allowed(tree, source, header):
    assert check_layering.find(tree({source: f"#include <{header}>\n"})) == []


def test_torch_and_protobuf_meet_through_headers(tree):
    root = tree(
        {
            "client/bridge.cc": '#include "client/bridge.h"\n#include "client/plan.h"\n',
            "client/bridge.h": "#include <ATen/ATen.h>\n",
            "client/plan.h": '#include "stepone/v1/artifact.pb.h"\n',
            "client/apart.cc": '#include "client/plan.h"\n',
        }
    )
    findings = check_layering.find(root)
    assert places(findings) == [("client/bridge.cc", 1)]
    assert "client/plan.h -> stepone/v1/artifact.pb.h" in findings[0].message


def test_an_unlisted_source_is_found(tree):
    root = tree(
        {
            "cache/CMakeLists.txt": "add_library(c STATIC lru.cc sub/deep.cc)\n# forgotten.cc\nforeach(n one two)\n",
            "cache/below/CMakeLists.txt": "add_library(d STATIC ../above.cc)\n",
            "cache/above.cc": "",
            "cache/lru.cc": "",
            "cache/sub/deep.cc": "",
            "cache/one.cc": "",
            "cache/forgotten.cc": "",
            "cache/ru.cc": "",
        }
    )
    assert places(check_sources_listed.find(root)) == [("cache/forgotten.cc", 1), ("cache/ru.cc", 1)]


def test_long_files_and_grab_bags_are_found(tree):
    root = tree(
        {
            "cache/long.h": "\n" * 251,
            "cache/right.h": "\n" * 250,
            "cache/right.cc": "\n" * 800,
            "server/long.cc": "\n" * 801,
            "server/utils.cc": "",
        }
    )
    assert places(check_file_size.find(root)) == [("cache/long.h", 251), ("server/long.cc", 801), ("server/utils.cc", 1)]


def test_long_functions_are_found(tree):
    body = "  a();\n" * 59
    root = tree(
        {
            "cache/a.cc": "namespace x {\n\nint F(\n    int b) {\n" + body + "}\n\nint G() {\n" + body[:-7] + "}\n}  // namespace x\n",
            "cache/b.h": "class C {\n public:\n  void H() {\n" + "  " + body.replace("\n  ", "\n    ") + "  }\n};\n",
            "tests/x.py": "def f():\n" + "    a()\n" * 60 + "\n\ndef g():\n" + "    a()\n" * 59,
        }
    )
    assert places(check_function_size.find(root)) == [("cache/a.cc", 3), ("cache/b.h", 3), ("tests/x.py", 1)]


def test_getenv_is_found_outside_main_files(tree):
    root = tree(
        {
            "server/main.cc": 'getenv("A");\n',
            "server/broker.cc": '// getenv("A") is not for us\nauto* a = std::getenv("A");\n',
            "client/python/stepone/config.py": "os.environ\n",
            "client/python/stepone/backend.py": "import os\nx = os.environ.get('A')\n",
            "tests/python/test_x.py": "os.environ\n",
        }
    )
    assert places(check_getenv.find(root)) == [("server/broker.cc", 2), ("client/python/stepone/backend.py", 2)]


def test_unformatted_code_is_found(tree):
    style = (pathlib.Path(__file__).resolve().parents[2] / ".clang-format").read_text()
    root = tree({".clang-format": style, "cache/a.cc": "int a = 1;\nint  b=2;\n", "cache/b.cc": "int b = 2;\n"})
    assert set(places(check_format.find(root))) == {("cache/a.cc", 2)}


def test_banned_words_are_found(tree):
    unfinished, machine, registry = "TO" + "DO", "/wo" + "rk/main/x", "py" + "pi.org"
    root = tree(
        {
            "cache/a.cc": f"int a;  // {unfinished}: b\n",
            "README.md": f"see {machine}\nor https://{registry}/simple\nbut not lib/work/x or XXXXXX\n",
            "LICENSE": f"{unfinished}\n",
        }
    )
    assert places(check_words.find(root)) == [("README.md", 1), ("README.md", 2), ("cache/a.cc", 1)]


def test_missing_maps_and_dead_links_are_found(tree):
    root = tree(
        {
            "cache/lru.cc": "",
            "proto/README.md": "[lru](../cache/lru.cc) `cache/lru.cc` `cache/<name>.cc` [web](https://example.org)\n",
            "README.md": "[gone](cache/gone.md)\n`cache/gone.cc`\n",
        }
    )
    assert places(check_docs.find(root)) == [("cache/README.md", 1), ("README.md", 1), ("README.md", 2)]
