"""Neither side of the wire shows where a user is: not in messages, not in logs, whatever the other side sends."""

from __future__ import annotations

import io
import threading
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from helpers.secret_values import PROPERTY, SENTINEL, VALUES, recorded_logs
from hypothesis import given
from hypothesis import strategies as st

from privopt_lr_geo import wire
from privopt_lr_geo.messages import Answer, Package, to_bytes
from privopt_lr_geo.wire import ServerLimits, UploadRound

USER = f"{SENTINEL}-6"
"""A user's record; all records of the map have the sentinel in their ids."""


@pytest.fixture(scope="module")
def map_path(tmp_path_factory):
    """Write a problem over nine records of a plane, one of them with a prior of 0; returns its path."""
    folder = tmp_path_factory.mktemp("map")
    rows = [(f"{SENTINEL}-{n}", 0.5 * (n % 3), 0.5 * (n // 3)) for n in range(9)]
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{name},{x},{y}\n" for name, x, y in rows))
    (folder / "prior.csv").write_text(
        "id,p\n" + "".join(f"{name},{float(n > 0) / 8}\n" for n, (name, *_) in enumerate(rows))
    )
    path = folder / "problem.toml"
    path.write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n'
        '[privacy]\nepsilon = 2.0\nneighbours_within = 0.8\n[utility]\nkind = "distance"\nprior = "prior.csv"\n'
        f'[lr-geo]\nusers = ["{USER}"]\nradius = 1.2\nobfuscation_radius = 1.6\nexponential_beyond = 0.6\n'
    )
    return path


def run_side(*arguments):
    """Return the exit code of one side, and all that it shows: both streams and the log."""
    streams = io.StringIO()
    with redirect_stderr(streams), redirect_stdout(streams), recorded_logs(streams):
        try:
            code = wire.main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = error.code
    return code, streams.getvalue()


def ask(path, folder, *options, user=f"--user={USER}", server="http://127.0.0.1:1", seconds=0.05):
    return run_side("ask", path, user, "--server", server, "--out", folder, "--seconds", seconds, *options)


@PROPERTY
@given(value=VALUES.filter(lambda value: "\0" not in value))
@pytest.mark.parametrize("form", ["--user={}", "--user {} 1", "--user=1 {}", "--place={}", "--user {}", "{} --user=1"])
def test_user_off_the_map_is_not_repeated(map_path, tmp_path_factory, form, value):
    words = [word.format(value) for word in form.split()]
    options = ["--server", "http://127.0.0.1:1", "--out", tmp_path_factory.mktemp("own"), "--seconds", 0.05]
    code, shown = run_side("ask", map_path, *words, *options)
    assert code == 2
    assert SENTINEL not in shown


@pytest.mark.parametrize("user", [f"{SENTINEL}-0", f"{SENTINEL}-66"])
def test_user_of_a_fault_is_not_named(map_path, tmp_path, user):
    """One stands where the prior is 0, and the other's name is near one of the map."""
    code, shown = ask(map_path, tmp_path / "own", user=f"--user={user}")
    assert code == 2
    assert "user" in shown
    assert SENTINEL not in shown


@contextmanager
def answering(reply):
    """Serve ``reply(verb, body) -> (status, body)`` to a client; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format, *arguments):
            """Log nothing."""

        def do_PUT(self):
            self.respond(self.rfile.read(int(self.headers["Content-Length"])))

        def do_GET(self):
            self.respond(b"")

        def respond(self, body):
            status, content = reply(self.command, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


STATUSES = [400, 401, 403, 404, 409, 410, 411, 413, 418, 500, 503]


@pytest.mark.parametrize("status", STATUSES)
def test_words_of_a_server_are_not_repeated(map_path, tmp_path, status):
    """A server knows where a user is, and could write it into the user's own log."""

    def reply(verb, body):
        return (404, b"") if verb == "GET" else (status, f"the user of {USER}\x1b[31m".encode())

    with answering(reply) as url:
        code, shown = ask(map_path, tmp_path / "own", server=url, seconds=1.0)
    assert code == 5
    assert "\x1b" not in shown
    assert SENTINEL not in shown


def hostile_answers(shape):
    """Return answers that cannot be made to keep the promise, or are none."""
    rows, outputs = shape
    package = Package(
        distances=np.full((rows, rows), float(SENTINEL)),
        reach=np.full(shape, float(SENTINEL)),
        costs=np.full(shape, float(SENTINEL)),
        free=np.ones(shape, dtype=bool),
    )
    arrays = [
        np.full(shape, np.nan),
        np.full(shape, -float(SENTINEL)),
        np.full(shape, 1e308),
        np.zeros(shape),
        np.full((rows + 1, outputs), float(SENTINEL)),
        np.full((0, outputs), 1.0),
    ]
    yield from (to_bytes(Answer(z=array)) for array in arrays)
    yield to_bytes(package)
    yield SENTINEL.encode()
    other_form = io.BytesIO()
    np.savez_compressed(other_form, format=np.full(3, float(SENTINEL)), z=np.zeros(shape))
    yield other_form.getvalue()


@pytest.mark.parametrize("number", range(9))
def test_hostile_answers_lead_to_no_message_of_a_place(map_path, tmp_path, number):
    answers = []

    def reply(verb, body):
        if verb == "PUT":
            with np.load(io.BytesIO(body)) as arrays:
                answers.extend(hostile_answers(arrays["costs"].shape))
            return 202, b""
        return (200, answers[number]) if answers else (404, b"")

    with answering(reply) as url:
        code, shown = ask(map_path, tmp_path / "own", server=url, seconds=60.0)
    assert SENTINEL not in shown
    assert code in (0, 2, 5)
    assert (code == 0) == (tmp_path / "own" / "mechanism.npz").exists()


# --- the server ----------------------------------------------------------------------------------------


@contextmanager
def round_served(streams, running):
    """Serve a round while all that its process shows is recorded; yields a function that sends a request."""
    http = wire._Server(("127.0.0.1", 0), running, ServerLimits())
    with redirect_stderr(streams), redirect_stdout(streams), recorded_logs(streams), http as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def send(verb, path, body=None, headers=None):
            connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            connection.request(verb, path, body, headers or {})
            try:
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        try:
            yield send
        finally:
            server.shutdown()
            thread.join()


def planted_packages(draw):
    """Draw bytes of packages with the sentinel among their numbers, or in their form."""
    shape = draw(st.sampled_from([(2, 9), (3, 9), (10, 9), (2, 8)]))
    arrays = {
        "distances": np.zeros((shape[0], shape[0])),
        "reach": np.zeros(shape),
        "costs": np.zeros(shape),
        "free": np.zeros(shape, dtype=bool),
    }
    key = draw(st.sampled_from(["distances", "reach", "costs"]))
    arrays[key].flat[draw(st.integers(0, arrays[key].size - 1))] = draw(
        st.sampled_from([-float(SENTINEL), float(SENTINEL), np.nan, np.inf])
    )
    raw = io.BytesIO()
    forms = {
        "as it is": arrays,
        "as text": arrays | {key: arrays[key].astype(str)},
        "with another part": arrays | {f"of {SENTINEL}": np.zeros(1)},
        "flat": arrays | {key: arrays[key].ravel()},
    }
    version = draw(st.sampled_from([np.int64(1), np.int64(int(SENTINEL)), np.full(3, float(SENTINEL))]))
    np.savez_compressed(raw, format=version, **forms[draw(st.sampled_from(sorted(forms)))])
    return raw.getvalue()[: draw(st.sampled_from([None, -20]))]


@PROPERTY
@given(data=st.data())
def test_server_shows_nothing_of_packages(data):
    streams, running = io.StringIO(), UploadRound(records=9, outputs=9, users=2)
    with round_served(streams, running) as send:
        for name in (f"{int(SENTINEL):032x}", f"{SENTINEL}", f"..%2f{SENTINEL}"):
            send("PUT", f"/packages/{name}", planted_packages(data.draw))
            send("GET", f"/answers/{name}", headers={"X-Forwarded-For": SENTINEL})
            send("PUT", f"/packages/{name}", headers={"Content-Length": SENTINEL})
            send("DELETE", f"/answers/{name}")
    assert streams.getvalue() == ""


def test_fault_of_the_server_names_no_client_and_no_value():
    class Faulty(UploadRound):
        def get(self, name):
            raise ValueError(f"{SENTINEL} of {name}")

    streams = io.StringIO()
    with round_served(streams, Faulty(records=9, outputs=9, users=2)) as send, pytest.raises(ConnectionError):
        send("GET", f"/answers/{7:032x}")
    shown = streams.getvalue()
    assert "a request failed: ValueError" in shown
    assert SENTINEL not in shown
    assert f"{7:032x}" not in shown
    assert "127.0.0.1" not in shown
