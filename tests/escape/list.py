"""Prints the attempts as docs/SECURITY.md lists them: by class, marked * when a weakened build lets them through."""
import itertools

import escape

key = lambda a: a.cls
for cls, group in itertools.groupby(sorted(escape.load_all(), key=key), key):
    print(f"### {cls}\n| attempt | promise |\n| --- | --- |")
    for a in group:
        print(f"| `{a.name}`{' *' if a.opens_when_weak else ''} | {a.promise} |")
    print()
