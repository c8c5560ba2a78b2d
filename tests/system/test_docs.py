"""Documents that must stay true: promises name tests that exist, every key is explained."""
import glob
import os
import re
import subprocess

import pytest

from cove import TOP, read

SPEC = read(f"{TOP}/docs/SPEC.md")
# For those who work in the repository, not for those who build.
NOT_PACKED = {".gitignore", ".clang-format", ".cppcheck-suppressions"}


def promises():
    """(number, text) of each; a promise goes to the next number or headline."""
    return re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", SPEC, re.M | re.S)


def named_tests(text):
    return re.findall(r"`(tests/[\w/]+\.(?:py|c))(?:::|:)(\w+)`", text)


def test_promises_are_numbered_without_gaps():
    numbers = sorted(int(n) for n, _ in promises())  # a new promise stands in its section, with the next free number
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 20


def test_every_promise_names_at_least_one_test():
    without = [n for n, text in promises() if not named_tests(text)]
    assert not without


def test_every_named_test_exists():
    missing = []
    for path, name in named_tests(SPEC):
        pattern = rf"^def {name}\(" if path.endswith(".py") else rf"\b{name}\s*\("
        if not re.search(pattern, read(f"{TOP}/{path}"), re.M):
            missing.append(f"{path}:{name}")
    assert not missing


def make_says(variable):
    """What a variable of the build's makefile stands for."""
    return subprocess.run(["make", "-s", "-f", "Makefile", "-f", "-", "print"], cwd=f"{TOP}/.cove/build", text=True, check=True,
                          input=f"print: ; @printf '%s\\n' $({variable})\n", capture_output=True).stdout.split()


def test_every_named_c_test_is_run(session_server):
    """A function that no table of cmocka's names, or a file that no makefile builds, tests nothing."""
    built, idle = make_says("UNIT_TESTS"), []
    for path, name in named_tests(SPEC):
        if path.startswith("tests/unit/"):
            registered = re.search(rf"\(\s*{name}\s*[,)]", read(f"{TOP}/{path}"))
            idle += [] if registered and path[:-2] in built else [f"{path}:{name}"]
    assert not idle and len(built) > 30


def test_the_tarball_holds_every_file_of_the_repository(session_server):
    if not os.path.exists(f"{TOP}/.git"):
        pytest.skip("no repository here to compare with")
    ours = subprocess.run(["git", "-C", TOP, "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    packed = {p.replace(f"{TOP}/", "").removeprefix("../../") for p in make_says("DISTFILES")}
    folders = tuple(f"{p}/" for p in packed if os.path.isdir(f"{TOP}/{p}"))
    assert len(packed) > 300 and not [p for p in ours if p not in packed | NOT_PACKED and not p.startswith(folders)]


def keys_of_config():
    dialects = re.findall(r'^    ROW\(\w+, +"(\w+)"', read(f"{TOP}/include/cove/dialect.h"), re.M)
    each = "".join(f'    TEXT("port_access_{d}",\n' for d in dialects)
    table = read(f"{TOP}/base/config.c").replace("    DIALECT_ROWS(PORT_ACCESS)", each)
    return re.findall(r'^\s+(?:TEXT|NUMBER|BYTES|TIME|WORD)\("(\w+)",', table, re.M)


def test_every_key_is_explained_in_the_file_and_in_the_manual():
    keys = keys_of_config()
    assert len(keys) > 20
    assert re.findall(r"^(\w+) = ", read(f"{TOP}/conf/cove.conf"), re.M) == keys
    assert re.findall(r"^\.It Cm (\w+) No =", read(f"{TOP}/man/cove.conf.5"), re.M) == keys


def test_the_values_in_the_file_are_the_defaults(session_server):  # so that coved is built
    coved = f"{TOP}/.cove/inst/sbin/coved"
    show = lambda *args: subprocess.run([coved, *args, "--show-config"], capture_output=True, text=True).stdout
    ours = dict(re.findall(r"^(\w+) = (.*)$", show("-c", f"{TOP}/conf/cove.conf"), re.M))
    defaults = dict(re.findall(r"^(\w+) = (.*)$", show("-c", "/dev/null"), re.M))
    paths = {"run_dir", "state_dir", "keys_file", "operators_file", "tenants_file", "templates_file", "policy_file", "profile_dir", "audit_file", "libexec_dir"}  # by --prefix
    assert ours.keys() == set(keys_of_config())
    assert {k: v for k, v in ours.items() if k not in paths} == {k: v for k, v in defaults.items() if k not in paths}


def test_links_between_documents_lead_somewhere():
    for name in glob.glob("**/*.md", root_dir=TOP, recursive=True):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", read(f"{TOP}/{name}")):
            assert os.path.exists(os.path.join(TOP, os.path.dirname(name), target)), f"{name}: {target}"


def test_files_that_documents_name_exist():
    """Names with capitals in them (test_X.c) stand for others."""
    folders = "base|bench|cli|conf|docs|fcgi|helpers|include|keys|man|nginx|policy|process|sandbox|systemd|tests|tools|web"
    named = {(page, path) for page in glob.glob("**/*.md", root_dir=TOP, recursive=True)
             for path in re.findall(rf"`((?:{folders})/[a-z0-9_./-]+\.[a-z]+)(?:::?\w+)?`", read(f"{TOP}/{page}"))}
    assert len(named) > 150
    assert not [(page, path) for page, path in sorted(named) if not os.path.exists(f"{TOP}/{path}")]


def test_suites_can_run_in_one_call_of_pytest():
    """Several folders have a conftest.py, and Python knows one module of a name."""
    said = subprocess.run(["grep", "-rnE", "^ *(from|import) conftest", "--include=*.py", f"{TOP}/tests"], capture_output=True, text=True)
    assert said.stdout == ""


def test_every_mutant_still_applies():
    """A patch that no longer applies shows nothing, and only five are tried a day."""
    stale = [m for m in sorted(glob.glob(f"{TOP}/tests/mutants/*.patch"))
             if subprocess.run(["git", "apply", "--check", m], cwd=TOP, capture_output=True).returncode]
    assert not stale


def test_the_list_of_mutants_names_each_and_no_other():
    patches = {os.path.basename(m)[:-len(".patch")].lstrip("0") for m in glob.glob(f"{TOP}/tests/mutants/*.patch")}
    rows = re.findall(r"^\| (\d+) \| ([\w-]+) \|", read(f"{TOP}/docs/MUTANTS.md"), re.M)
    assert sorted("-".join(row) for row in rows) == sorted(patches)
