"""Which suites of others' clients there are. Not in conftest.py: other folders have a module of that name, too."""
import glob
import os

LONG = os.environ.get("COVE_TEST_LONG") == "yes"
# Each suite has two tenants of its own: what a suite that failed leaves behind is in nobody else's lists.
SUITES = sorted(os.path.basename(path).removesuffix(".test.mjs") for path in glob.glob(f"{os.path.dirname(os.path.abspath(__file__))}/*.test.mjs"))
