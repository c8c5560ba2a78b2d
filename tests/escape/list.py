"""Prints the attempts as docs/SECURITY.md lists them: by class, marked * when a weakened build lets them through."""
import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
import escape  # noqa: E402
import test_exhaust  # noqa: E402


def everything():
    """What runs in a sandbox, and what is done to one from outside."""
    return sorted([*escape.load_all(), *test_exhaust.ATTACKS], key=lambda a: (a.cls, a.name))


def sections():
    for cls, group in itertools.groupby(everything(), lambda a: a.cls):
        rows = "".join(f"| `{a.name}`{' *' if a.opens_when_weak else ''} | {a.promise} |\n" for a in group)
        yield f"### {cls}\n| attempt | promise |\n| --- | --- |\n{rows}"


if __name__ == "__main__":
    print("\n".join(sections()), end="")
