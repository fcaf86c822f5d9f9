"""Start the agent in this interpreter, then run the sitecustomize that this file shadows.

The only file of ours on PYTHONPATH. It must parse under every Python that a training script may
start, however old, and whatever fails here, the target goes on as if the file were not there.
"""

import os
import sys


class _AgentFinder(object):
    """Finds the package `whyidle_agent` by its path, so that nothing else of its folder is importable."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        """Answer for `whyidle_agent` only."""
        if name != "whyidle_agent":
            return None
        from importlib.machinery import ModuleSpec, SourceFileLoader

        origin = os.path.join(self.folder, "__init__.py")
        spec = ModuleSpec(
            name, SourceFileLoader(name, origin), origin=origin, is_package=True
        )
        spec.submodule_search_locations = [self.folder]
        spec.has_location = True
        return spec


def _start_agent(folder):
    """Import and start the agent; after a failure nothing of it is left behind."""
    finder = _AgentFinder(folder)
    sys.meta_path.insert(0, finder)
    try:
        from whyidle_agent import boot

        boot.start()
    except Exception:
        _forget_agent()
    finally:
        sys.meta_path.remove(finder)


def _forget_agent():
    for entry in [
        one for one in sys.meta_path if type(one).__module__ == "whyidle_agent.hooks"
    ]:
        sys.meta_path.remove(entry)
    for name in [one for one in sys.modules if one.partition(".")[0] == "whyidle_agent"]:
        del sys.modules[name]


def _step_aside(folder):
    """Take our folder off sys.path; the environment keeps it, so children are observed too."""
    for entry in [one for one in sys.path if os.path.abspath(one) == folder]:
        sys.path.remove(entry)
        sys.path_importer_cache.pop(entry, None)
    sys.modules.pop("sitecustomize", None)


def _run():
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info >= (3, 8) and os.environ.get("WHYIDLE_RUN_DIR"):
        _start_agent(os.path.dirname(folder))
    _step_aside(folder)


_run()

# The import below leaves the shadowed module in sys.modules under our name, and where there is none
# it fails as it would have failed without us: the site module knows what to do in both cases.
import sitecustomize  # noqa: E402, F401
