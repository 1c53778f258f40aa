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
def start_process(write, tmp_path):
    """Start one side; what still runs at the end is killed."""
    running = []

    def start(side, *options, users=USERS):
        path = write(users=str(list(users)).replace("'", '"'))
        command = [*SIDE, side, str(path), *map(str, options)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def address_of(process):
    """Return the URL that a server prints first."""
    return process.stdout.readline().strip()


def send_request(url, verb, path, body=None, headers=None):
    """Return status and body."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request(verb, path, body, headers or {})
    answer = connection.getresponse()
    response = answer.status, answer.read()
    connection.close()
    return response


def name_of(folder):
    return sha256(f"{stored_seed(folder, None, resume=True)} name".encode()).hexdigest()[:32]


def wait_for_upload(url, folder):
    """Wait until a client's package is there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (folder / "users.npz").exists() and send_request(url, "GET", f"/answers/{name_of(folder)}")[0] == 202:
            return
        time.sleep(0.05)
    raise AssertionError("the client uploaded nothing within a minute")


def solve_in_one_process(write, folders):
    """Return each user's matrix (n, K) of integers as without a wire, from the seeds that clients kept."""
    path = write(users=str(list(USERS)).replace("'", '"'))
    client_of = {}
    for user, folder in folders.items():
        problem = LRGeoInstance.of(load_problem(LRGeoProblem, write(user, users=f'["{user}"]')))
        client_of[name_of(folder)] = user, clients_of(problem, stored_seed(folder, None, resume=True))[0]
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    names = sorted(client_of)
    packages = [client_of[name][1].package for name in names]
    solution = server.solve(packages, terms_of(problem), SolveContext(method="full", solver="highs"))
    epsilon = problem.data.epsilon
    named_answers = zip(names, solution.answers, strict=True)
    return {client_of[name][0]: client_of[name][1].accept(answer, epsilon).weights for name, answer in named_answers}


@pytest.mark.slow
def test_round_matches_one_process_if_client_is_killed(start_process, write, tmp_path):
    serving = start_process("serve", "--users", 2, "--method", "full")
    url = address_of(serving)
    folders = {user: tmp_path / "of" / user for user in USERS}

    def asking(user):
        return start_process("ask", "--user", user, "--server", url, "--out", folders[user])

    first = asking(USERS[0])
    wait_for_upload(url, folders[USERS[0]])
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    seed = stored_seed(folders[USERS[0]], None, resume=True)
    clients = [asking(user) for user in USERS]
    assert [process.wait(120) for process in clients] == [0, 0], [process.stderr.read() for process in clients]
    assert serving.wait(60) == 0
    assert seed == stored_seed(folders[USERS[0]], None, resume=True)
    expected = solve_in_one_process(write, folders)
    for user, folder in folders.items():
        release = MatrixRelease.read_without_problem(folder)
        assert np.array_equal(release.weights, expected[user])
        assert len(release.sample(user, 5)) == 5
        assert folder.stat().st_mode & 0o077 == 0
    assert (serving.stdout.read(), serving.stderr.read()) == ("", "")


def test_refuses_invalid_packages_and_goes_on(start_process, write, tmp_path):
    serving = start_process("serve", "--users", 1, "--method", "full", "--largest", 200_000)
    url = address_of(serving)
    name = "/packages/" + 32 * "a"
    small_reach = np.zeros((2, 3))
    other_package = to_bytes(
        Package(distances=np.zeros((2, 2)), reach=small_reach, costs=small_reach, free=small_reach > 0)
    )
    bomb = to_bytes(
        Package(
            distances=np.zeros((300, 300)),
            reach=np.zeros((300, 25)),
            costs=np.zeros((300, 25)),
            free=np.zeros((300, 25)) > 0,
        )
    )
    assert len(bomb) < 200_000
    for expected_status, path, body, headers in (
        (413, name, None, {"Content-Length": "200001"}),
        (413, name, None, {"Content-Length": 40 * "9"}),
        (411, name, iter([b"abc"]), {"Transfer-Encoding": "chunked"}),
        (411, name, None, {"Content-Length": "-1"}),
        (400, name, b"no archive", {}),
        (400, name, other_package, {}),
        (400, name, bomb, {}),
        (400, "/packages/../../etc/passwd", other_package, {}),
        (400, "/elsewhere", other_package, {}),
    ):
        assert send_request(url, "PUT", path, body, headers)[0] == expected_status, (path, headers)
    assert send_request(url, "GET", "/answers/" + 32 * "b")[0] == 404
    silent = HTTPConnection(url.removeprefix("http://"))
    silent.connect()  # says nothing, and holds nobody up
    client = start_process("ask", "--user", USERS[0], "--server", url, "--out", tmp_path / "own")
    assert client.wait(120) == 0, client.stderr.read()
    assert serving.wait(60) == 0
    silent.close()


@pytest.mark.slow
def test_round_ends_without_all_users(start_process, tmp_path):
    """Whether the client comes in time to hear it or finds nobody any more, it ends without a matrix."""
    serving = start_process("serve", "--users", 2, "--method", "full", "--seconds", 6)
    url = address_of(serving)
    client = start_process("ask", "--user", USERS[0], "--server", url, "--out", tmp_path / "own", "--seconds", 15)
    assert serving.wait(120) == 5
    assert client.wait(120) == 5
    assert not (tmp_path / "own" / "mechanism.npz").exists()


@pytest.fixture
def users_of(write):
    """Return a problem, and the packages of its users."""
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write()))
    return problem, [client.package for client in clients_of(problem, 1)]


def test_round_serves_answers_then_closes(users_of):
    problem, packages = users_of
    running = UploadRound(records=25, outputs=25, users=2, seconds=0)
    context = SolveContext(method="full", solver="highs")
    for name, package in zip("ba", reversed(packages), strict=True):
        assert running.put(name, to_bytes(package))[0] == 202
    assert running.run(problem, context)
    expected = server.solve(packages, terms_of(problem), context).answers
    assert [running.get(name) for name in "ab"] == [(200, to_bytes(answer)) for answer in expected]


def test_round_without_all_users_has_no_answers(users_of):
    problem, packages = users_of
    running = UploadRound(records=25, outputs=25, users=2, seconds=0)
    running.put("a", to_bytes(packages[0]))
    assert not running.run(problem, SolveContext(method="full", solver="highs"))
    assert running.get("a")[0] == 410
    assert running.put("b", to_bytes(packages[1]))[0] == 403


def test_takes_each_package_once(write):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, write(users='["r1c1", "r2c3", "r3c3"]')))
    raw = [to_bytes(client.package) for client in clients_of(problem, 1)]
    running = UploadRound(records=25, outputs=25, users=2)
    uploads = [("a", 0), ("a", 0), ("a", 1), ("b", 1), ("c", 2), ("a", 0)]
    assert [int(running.put(name, raw[number])[0]) for name, number in uploads] == [202, 202, 409, 202, 403, 202]
    assert running.get("a")[0] == 202
    assert running.get("c")[0] == 404


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "127.0.0.1:80", "http://", "http://host:port", "http://[::1"])
def test_refuses_invalid_server_address(url, tmp_path):
    with pytest.raises(UsageError, match="server must"):
        wire.ask(None, url, tmp_path / "user")
    assert not (tmp_path / "user").exists()


def test_https_address_is_never_sent_clear_text():
    """A package in the clear would show where its user is."""
    assert isinstance(wire._open_connection("https://127.0.0.1:1"), HTTPSConnection)


# --- limits: tiny ones, so that no test depends on how fast the machine is ---------------------------------


@pytest.fixture
def limited_server():
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

        connect.server = servers[-1]
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


def test_server_ends_endless_request(limited_server):
    connect = limited_server(request_seconds=0.2)
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


def test_server_closes_excess_connections(limited_server):
    connect = limited_server(connections=2)
    connections = [connect(put(number, 1000)) for number in range(2)]
    assert is_closed(connect(put(3, 10)))
    connections[0].sendall(bytes(1000))
    assert connections[0].recv(12).startswith(b"HTTP/1.0 400")


def test_server_limits_received_bytes(limited_server):
    connect = limited_server(body_bytes=1500)
    first = connect(put(1, 1000) + b"x")
    while connect.server._reserved_bytes < 1000:  # a second request must not overtake the first
        time.sleep(0.01)
    assert connect(put(2, 1000)).recv(12).startswith(b"HTTP/1.0 503")
    first.shutdown(socket.SHUT_WR)
    assert first.recv(12).startswith(b"HTTP/1.0 400")


def test_server_reads_no_body_without_name(limited_server):
    connect = limited_server()
    assert connect(b"PUT /elsewhere HTTP/1.0\r\nContent-Length: 900\r\n\r\n").recv(12).startswith(b"HTTP/1.0 400")


@pytest.fixture
def bad_server():
    """Return a function that starts a server which answers with a text and then goes on with another for ever."""
    listener = socket.create_server(("127.0.0.1", 0))

    def start(begin, rest_bytes=b""):
        def answer():
            while True:
                try:
                    with listener.accept()[0] as connection:
                        connection.recv(65536)
                        connection.sendall(begin)
                        while rest_bytes:
                            connection.sendall(rest_bytes)
                            time.sleep(0.02)
                except OSError:
                    if listener.fileno() < 0:
                        return

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    listener.close()


@pytest.mark.parametrize("begin", [b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n", b"HTTP/1.0 200 OK\r\nA: ", b""])
def test_client_does_not_wait_for_dripping_answer(bad_server, begin):
    with pytest.raises(StoppedError, match="no answer within"):
        wire._fetch_answer(bad_server(begin, b"x"), 32 * "a", b"", 0.3)


@pytest.mark.parametrize("head", [b"Content-Length: 5000\r\n", b""])
def test_client_refuses_large_answer(bad_server, head):
    url = bad_server(b"HTTP/1.0 200 OK\r\n" + head + b"\r\n", 500 * b"x")
    with limit(60), pytest.raises(StoppedError, match="more than 1,000 bytes"):
        wire._send_request(url, "GET", "/", largest=1000)
