"""Server and clients as processes over HTTP: killed, restarted, oversized and malformed, and the same results."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from hashlib import sha256
from http.client import HTTPConnection, HTTPSConnection

import numpy as np
import pytest

from privopt.declare import load_problem
from privopt.errors import StoppedError, UsageError
from privopt.execution.clock import limit
from privopt.interfaces import SolveContext
from privopt_lr_geo import server, wire
from privopt_lr_geo.central import clients_of, terms_of
from privopt_lr_geo.messages import Package, to_bytes
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.user_randomness import stored_seed
from privopt_lr_geo.wire import UploadRound
from privopt_metric_dp.matrix.release import MatrixRelease

USERS = ("r1c1", "r2c3")
SIDE = [sys.executable, "-P", "-m", "privopt_lr_geo.wire"]


@pytest.fixture
def started(write, tmp_path):
    """Start one side; what still runs at the end is killed."""
    running = []

    def start(side, *more, users=USERS):
        path = write(users=str(list(users)).replace("'", '"'))
        command = [*SIDE, side, str(path), *map(str, more)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def address_of(process):
    """Return the URL that a server prints first."""
    return process.stdout.readline().strip()


def requested(url, verb, path, body=None, headers=None):
    """Return status and body."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request(verb, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def name_of(folder):
    return sha256(f"{stored_seed(folder, None, resume=True)} name".encode()).hexdigest()[:32]


def uploaded(url, folder):
    """Wait until a client's package is there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (folder / "users.npz").exists() and requested(url, "GET", f"/answers/{name_of(folder)}")[0] == 202:
            return
        time.sleep(0.05)
    raise AssertionError("the client uploaded nothing within a minute")


def in_one_process(write, folders):
    """Return each user's matrix (n, K) of integers as without a wire, from the seeds that clients kept."""
    path = write(users=str(list(USERS)).replace("'", '"'))
    asked = {}
    for user, folder in folders.items():
        problem = LRGeoInstance.of(load_problem(LRGeoProblem, write(user, users=f'["{user}"]')))
        asked[name_of(folder)] = user, clients_of(problem, stored_seed(folder, None, resume=True))[0]
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    names = sorted(asked)
    packages = [asked[name][1].package for name in names]
    solved = server.solve(packages, terms_of(problem), SolveContext(method="full", solver="highs"))
    epsilon = problem.data.epsilon
    both = zip(names, solved.answers, strict=True)
    return {asked[name][0]: asked[name][1].accept(answer, epsilon).weights for name, answer in both}


@pytest.mark.slow
def test_a_round_gives_what_one_process_gives_though_a_client_is_killed(started, write, tmp_path):
    serving = started("serve", "--users", 2, "--method", "full")
    url = address_of(serving)
    folders = {user: tmp_path / "of" / user for user in USERS}

    def asking(user):
        return started("ask", "--user", user, "--server", url, "--out", folders[user])

    first = asking(USERS[0])
    uploaded(url, folders[USERS[0]])
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    kept = stored_seed(folders[USERS[0]], None, resume=True)
    clients = [asking(user) for user in USERS]
    assert [process.wait(120) for process in clients] == [0, 0], [process.stderr.read() for process in clients]
    assert serving.wait(60) == 0
    assert kept == stored_seed(folders[USERS[0]], None, resume=True)
    wanted = in_one_process(write, folders)
    for user, folder in folders.items():
        release = MatrixRelease.alone(folder)
        assert np.array_equal(release.weights, wanted[user])
        assert len(release.sample(user, 5)) == 5
        assert folder.stat().st_mode & 0o077 == 0
    assert (serving.stdout.read(), serving.stderr.read()) == ("", "")


def test_what_is_no_package_is_refused_and_the_round_goes_on(started, write, tmp_path):
    serving = started("serve", "--users", 1, "--method", "full", "--largest", 200_000)
    url = address_of(serving)
    name = "/packages/" + 32 * "a"
    few = np.zeros((2, 3))
    other = to_bytes(Package(distances=np.zeros((2, 2)), reach=few, costs=few, free=few > 0))
    bomb = to_bytes(
        Package(
            distances=np.zeros((300, 300)),
            reach=np.zeros((300, 25)),
            costs=np.zeros((300, 25)),
            free=np.zeros((300, 25)) > 0,
        )
    )
    assert len(bomb) < 200_000
    for wanted, path, body, headers in (
        (413, name, None, {"Content-Length": "200001"}),
        (413, name, None, {"Content-Length": 40 * "9"}),
        (411, name, iter([b"abc"]), {"Transfer-Encoding": "chunked"}),
        (411, name, None, {"Content-Length": "-1"}),
        (400, name, b"no archive", {}),
        (400, name, other, {}),
        (400, name, bomb, {}),
        (400, "/packages/../../etc/passwd", other, {}),
        (400, "/elsewhere", other, {}),
    ):
        assert requested(url, "PUT", path, body, headers)[0] == wanted, (path, headers)
    assert requested(url, "GET", "/answers/" + 32 * "b")[0] == 404
    silent = HTTPConnection(url.removeprefix("http://"))
    silent.connect()  # says nothing, and holds nobody up
    client = started("ask", "--user", USERS[0], "--server", url, "--out", tmp_path / "own")
    assert client.wait(120) == 0, client.stderr.read()
    assert serving.wait(60) == 0
    silent.close()


@pytest.mark.slow
def test_a_round_without_all_its_users_ends_and_says_so(started, tmp_path):
    """Whether the client comes in time to hear it or finds nobody any more, it ends without a matrix."""
    serving = started("serve", "--users", 2, "--method", "full", "--seconds", 6)
    url = address_of(serving)
    client = started("ask", "--user", USERS[0], "--server", url, "--out", tmp_path / "own", "--seconds", 15)
    assert serving.wait(120) == 5
    assert client.wait(120) == 5
    assert not (tmp_path / "own" / "mechanism.npz").exists()


@pytest.fixture
def users_of(write):
    """Return a problem, and the packages of its users."""
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    return problem, [client.package for client in clients_of(problem, 1)]


def test_a_round_answers_as_one_process_does_and_is_over_once_all_have_fetched(users_of):
    problem, packages = users_of
    running = UploadRound(records=25, outputs=25, users=2, seconds=0)
    context = SolveContext(method="full", solver="highs")
    for name, package in zip("ba", reversed(packages), strict=True):
        assert running.put(name, to_bytes(package))[0] == 202
    assert running.run(problem, context)
    wanted = server.solve(packages, terms_of(problem), context).answers
    assert [running.get(name) for name in "ab"] == [(200, to_bytes(answer)) for answer in wanted]


def test_a_round_without_all_its_users_has_no_answers(users_of):
    problem, packages = users_of
    running = UploadRound(records=25, outputs=25, users=2, seconds=0)
    running.put("a", to_bytes(packages[0]))
    assert not running.run(problem, SolveContext(method="full", solver="highs"))
    assert running.get("a")[0] == 410
    assert running.put("b", to_bytes(packages[1]))[0] == 403


def test_a_round_takes_each_package_once(write):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write(users='["r1c1", "r2c3", "r3c3"]')))
    raw = [to_bytes(client.package) for client in clients_of(problem, 1)]
    running = UploadRound(records=25, outputs=25, users=2)
    asked = [("a", 0), ("a", 0), ("a", 1), ("b", 1), ("c", 2), ("a", 0)]
    assert [int(running.put(name, raw[which])[0]) for name, which in asked] == [202, 202, 409, 202, 403, 202]
    assert running.get("a")[0] == 202
    assert running.get("c")[0] == 404


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "127.0.0.1:80", "http://", "http://host:port", "http://[::1"])
def test_a_server_that_is_no_address_is_refused_before_anything_is_written(url, tmp_path):
    with pytest.raises(UsageError, match="server must be http"):
        wire.ask(None, url, tmp_path / "user")
    assert not (tmp_path / "user").exists()


def test_an_address_by_tls_is_not_spoken_to_in_the_clear():
    """A package in the clear would show where its user is."""
    assert isinstance(wire._open_connection("https://127.0.0.1:1"), HTTPSConnection)


# --- limits: tiny ones, so that no test depends on how fast the machine is ---------------------------------


@pytest.fixture
def limited():
    """Return a function that starts a server of a round with limits, and connects to it."""
    servers, sockets = [], []

    def start(**limits):
        running = UploadRound(records=25, outputs=25, users=2, largest=1000)
        servers.append(wire._Server(("127.0.0.1", 0), running, wire.ServerLimits(**limits)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

        def connect(text=b""):
            sockets.append(socket.create_connection(servers[-1].server_address, timeout=60))
            sockets[-1].sendall(text)
            return sockets[-1]

        return connect

    yield start
    for connection in sockets:
        connection.close()
    for server_ in servers:
        server_.shutdown()
        server_.server_close()


def put(name, size):
    return f"PUT /packages/{name:032x} HTTP/1.0\r\nContent-Length: {size}\r\n\r\n".encode()


def is_closed(connection):
    """Whether the server closes a connection without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_server_ends_request_that_never_ends(limited):
    connect = limited(request_seconds=0.2)
    slow = connect(put(1, 1000))
    try:
        while True:  # a byte now and then keeps no connection open
            slow.sendall(b"x")
            slow.settimeout(0.02)
            try:
                if slow.recv(100) is not None:
                    break
            except TimeoutError:
                continue
    except ConnectionError:
        pass
    assert connect(b"GET /answers/%032x HTTP/1.0\r\n\r\n" % 1).recv(12).startswith(b"HTTP/1.0 404")


def test_server_closes_connections_beyond_its_limit(limited):
    connect = limited(connections=2)
    held = [connect(put(number, 1000)) for number in range(2)]
    assert is_closed(connect(put(3, 10)))
    held[0].sendall(bytes(1000))
    assert held[0].recv(12).startswith(b"HTTP/1.0 400")


def test_server_receives_no_more_bytes_than_it_has_room_for(limited):
    connect = limited(body_bytes=1500)
    first = connect(put(1, 1000) + b"x")
    while not connect(put(2, 1000)).recv(12).startswith(b"HTTP/1.0 503"):
        first.sendall(b"x")  # until the first request has been read
    first.shutdown(socket.SHUT_WR)
    assert first.recv(12).startswith(b"HTTP/1.0 400")


def test_server_reads_nothing_of_body_without_name(limited):
    connect = limited()
    assert connect(b"PUT /elsewhere HTTP/1.0\r\nContent-Length: 900\r\n\r\n").recv(12).startswith(b"HTTP/1.0 400")


@pytest.fixture
def bad_server():
    """Return a function that starts a server which answers with a text and then goes on with another for ever."""
    listener = socket.create_server(("127.0.0.1", 0))

    def start(begin, more=b""):
        def answer():
            while True:
                try:
                    with listener.accept()[0] as connection:
                        connection.recv(65536)
                        connection.sendall(begin)
                        while more:
                            connection.sendall(more)
                            time.sleep(0.02)
                except OSError:
                    if listener.fileno() < 0:
                        return

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    listener.close()


@pytest.mark.parametrize("begin", [b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.0 200 OK\r\nA: ", b""])
def test_client_does_not_wait_for_answer_that_drips(bad_server, begin):
    with pytest.raises(StoppedError, match="no answer within"):
        wire._fetch_answer(bad_server(begin, b"x"), 32 * "a", b"", 0.3)


@pytest.mark.parametrize("head", [b"Content-Length: 5000\r\n", b""])
def test_client_reads_no_answer_larger_than_its_limit(bad_server, head):
    url = bad_server(b"HTTP/1.0 200 OK\r\n" + head + b"\r\n", 500 * b"x")
    with limit(60), pytest.raises(StoppedError, match="more than 1,000 bytes"):
        wire._send_request(url, "GET", "/", largest=1000)
