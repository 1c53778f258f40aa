"""What every test stands on, the plugins' too: a cache of its own, and draws that are the same each time."""

import gc
import os
import random
import signal
from contextlib import contextmanager

# The workers fill the machine: a pool of threads in each would spin beside them, and end and begin anew at each fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy.random  # noqa: F401 - seeds itself once, as it is imported
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.fixtures"]

# Importing and collecting make millions of objects that stay: looking through them again and again finds no garbage.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in a shell's background: tests interrupt all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)
if (
    signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
):  # started under nohup: tests end their programs by it all the same
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

for profile in ("default", "ci"):
    # A first call may compile, so there are no deadlines. What needs more draws than these says so itself.
    settings.register_profile(
        profile,
        settings.get_profile(profile),
        max_examples=40,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
    )

os.fsync = lambda handle: None
"""What a test's own process writes need not outlive a power cut; test_publish.py holds what waits for the disk."""


class Entropy:
    """``os.urandom`` of the tests: a stream for each test and each wider fixture, which its name alone decides.

    Not in processes that tests start.
    """

    def __init__(self):
        self.system, self.stream, self.fixed = os.urandom, None, False

    def __call__(self, count):
        """So many bytes."""
        return self.stream.randbytes(count) if self.stream else self.system(count)

    def __reduce__(self):
        """Elsewhere it is the ``os.urandom`` that is there."""
        return eval, ("__import__('os').urandom",)

    @contextmanager
    def of(self, name):
        """Return the stream of that name, from its beginning."""
        before = self.stream
        self.stream = random.Random(name) if self.fixed else None
        try:
            yield
        finally:
            self.stream = before

    def forget(self):
        """In a forked child: two of them would draw alike."""
        self.stream, self.fixed = None, False


ENTROPY = Entropy()
os.urandom = random._urandom = ENTROPY  # the latter is behind secrets, SystemRandom and NumPy's seeds
os.register_at_fork(after_in_child=ENTROPY.forget)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """End a run whose worker dies, naming the test: pytest-xdist would replace the worker, then wait without end.

    Its schedulers of units (3.8) queue a dead worker's finished tests again and give them out as work that never ends.
    """
    if getattr(config.option, "maxworkerrestart", "absent") is None:
        config.option.maxworkerrestart = "0"


TOGETHER = {
    "reports": (
        "tests/browser/test_check",
        "tests/browser/test_looks",
        "tests/browser/test_reports",
        "tests/report/",
        "plugins/metric-dp/tests/report/",
    ),
    "site": ("tests/browser/test_pages_fit", "tests/browser/test_search", "tests/docs/test_site"),
    "rooms": ("tests/docs/test_house", "tests/house/test_rooms", "tests/house/test_source_rules"),
    "clients": ("plugins/clients/",),
    "wheels": ("tests/third_party/test_clean_environment", "tests/third_party/test_core_alone"),
}
"""What one worker runs, whose tests share what takes seconds to make; of all else each file is a worker's."""

LONGEST = (
    "reports",
    "tests/checker/test_corpus.py",
    "tests/testing/test_planted_faults.py",
    "tests/testing/test_baselines_conform.py",
    "plugins/hierarchical-dp/tests/test_hierarchical_conformance.py",
    "clients",
    "plugins/hierarchical-dp/tests/test_several_fit.py",
    "rooms",
    "tests/testing/test_judge.py",
    "plugins/fl-linear/tests/test_fl_kit.py",
    "plugins/metric-dp/tests/region/test_folders.py",
    "tests/docs/test_doc_blocks.py",
    "tests/testing/test_kinds_kit.py",
    "plugins/lr-geo/tests/test_lr_geo_kit.py",
    "tests/run/test_forged_results.py",
    "tests/testing/test_judge_faults.py",
    "tests/estimate/test_intervals.py",
    "plugins/bd-mdp/tests/test_bd_solver.py",
)
"""Where tests take longest, and three of make slow, the longest first: no worker is left with them at the end."""


def unit_of(nodeid):
    """Return what one worker runs of the test's: its file, or what goes TOGETHER with that."""
    file = nodeid.partition("::")[0]
    return next((name for name, files in TOGETHER.items() if file.startswith(files)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One worker more than there are processors: a fifth of the time of two workers on two was waiting."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker whole files: what their tests share is made once, and not by each worker.

    The groups by marks of pytest-xdist 3.8 are not kept by pytest 9.2, whose node ids it does not reach.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """Begin with what takes longest."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(unit_of(item.nodeid), len(places)))


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Where Hypothesis draws alike in each run, mechanisms do; ``make test DRAWS=default`` draws both anew."""
    ENTROPY.fixed = settings().derandomize


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave what importing and collecting made to no garbage collection, and let 20,000 new objects start one, not 700.

    A sixth of the processor's time of four files on 2026-11-27 was collections that found little.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Each test draws from a stream of its own."""
    with ENTROPY.of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Draw the same in a fixture of several tests, whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with ENTROPY.of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', '')}"):
        return (yield)


@pytest.fixture(scope="session")
def entropy():
    """Where what is kept for several tests draws from: ``with entropy.of("name"): ...``."""
    return ENTROPY


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Cache verification results in a folder of the tests, also for the processes that they start."""
    before = os.environ.get("PRIVOPT_CACHE")
    os.environ["PRIVOPT_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["PRIVOPT_CACHE"]
    else:
        os.environ["PRIVOPT_CACHE"] = before


def pytest_terminal_summary(terminalreporter):
    """Say of the tests that need what a machine may lack whether they ran: a skipped test looks like a passed one."""
    for name, folder in (("browser", "tests/browser/"), ("formal", "tests/formal/")):
        counts = {
            outcome: sum(report.nodeid.startswith(folder) for report in terminalreporter.stats.get(outcome, []))
            for outcome in ("passed", "skipped", "failed", "error")
        }
        if any(counts.values()):
            described = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            terminalreporter.write_line(f"{name} tests: {described}")
    without_node = sum(
        "no node on this machine" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])
    )
    if without_node:
        terminalreporter.write_line(f"node is missing: {without_node} tests of clients in JavaScript were skipped")
