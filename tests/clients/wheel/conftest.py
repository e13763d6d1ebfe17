"""The fixtures that several tests of the package share."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster import Cluster, running_cluster
from servers import Server, running
from sharded import Place, Way


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "filters"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[Cluster]:
    with running_cluster(None, replicas=0) as cluster:
        yield cluster


def placed(way: Way, kind: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if way.clustered:
            cluster = request.getfixturevalue(f"{kind}cluster")
            cluster.clear()
            yield Place(way, cluster.primaries(), cluster, stack)
        else:
            server = request.getfixturevalue(f"{kind}server")
            server.client.flushall()
            yield Place(way, [server], None, stack)


@pytest.fixture
def place(way: Way, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from placed(way, "", request)


@pytest.fixture
def bare_place(way: Way, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from placed(way, "bare_", request)
