#!/usr/bin/env python3
"""Makes the `stepone` package of this tree importable in .venv without copying or compiling anything twice.

build/python/stepone gets a symbolic link to each file of client/python/stepone, and, by the same install rules that fill
the wheel, links to the Python module and the binaries that cmake has just built. site-packages gets a .pth file that
points there and the metadata (version, entry points) of pyproject.toml. `pip uninstall stepone` removes both, and
`pip install .` replaces them by the wheel.

Usage: link_package.py BUILD_DIR (with the Python of the environment). Does nothing to what is already right.
"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "client/python/stepone"


def link_sources(package: pathlib.Path) -> None:
    wanted = {
        path.relative_to(SOURCES): path
        for path in SOURCES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for link in list(package.rglob("*")):
        target = pathlib.Path(os.readlink(link)) if link.is_symlink() else None
        if target and (not target.exists() or SOURCES in target.parents and link.relative_to(package) not in wanted):
            link.unlink()
    for name, path in wanted.items():
        link = package / name
        if link.is_symlink() and os.readlink(link) == str(path):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def entry_points(project: dict) -> str:
    groups = dict(project.get("entry-points", {}))
    if project.get("scripts"):
        groups["console_scripts"] = project["scripts"]
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]"] + [f"{name} = {target}" for name, target in entries.items()] + [""]
    return "\n".join(lines)


def console_script(target: str) -> str:
    module, function = target.split(":")
    return f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def write_metadata(python_dir: pathlib.Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = pathlib.Path(sysconfig.get_path("purelib"))
    for old in site.glob("stepone-*.dist-info"):
        if (old / "direct_url.json").exists() or not (old / "LINKED").exists():
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "-y", "stepone"], check=True)
    info = site / f"stepone-{project['version']}.dist-info"
    files = {
        site / "stepone.pth": f"{python_dir}\n",
        info / "METADATA": f"Metadata-Version: 2.1\nName: stepone\nVersion: {project['version']}\n",
        info / "entry_points.txt": entry_points(project),
        info / "INSTALLER": "make\n",
        info / "LINKED": f"{ROOT}\n",
    }
    scripts = pathlib.Path(sysconfig.get_path("scripts"))
    for name, target in project.get("scripts", {}).items():
        files[scripts / name] = console_script(target)
    files[info / "RECORD"] = "".join(f"{os.path.relpath(path, site)},,\n" for path in [*files, info / "RECORD"])
    for path, text in files.items():
        write_if_changed(path, text)
        if path.parent == scripts:
            path.chmod(0o755)


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    python_dir = build / "python"
    package = python_dir / "stepone"
    package.mkdir(parents=True, exist_ok=True)
    link_sources(package)
    subprocess.run(
        ["cmake", "--install", str(build), "--component", "python", "--prefix", str(python_dir)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "CMAKE_INSTALL_MODE": "ABS_SYMLINK"},
    )
    write_metadata(python_dir)
    print(f"Python package: {package} is linked into {sys.prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
