"""Builds the Dockerfiles of the release, and runs their images, with buildah.

The public images are not downloaded. Our own Debian with the servers replaces them. It is as old as they are, or older.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pages
import pytest
import redis
import yaml
from conftest import DIST, PAGE, TARGET, version
from servers import HOST, ROOT, free_port, wait_until

BASE = "localhost/server"


class Builder:
    """Builds images in a folder of its own, without a service and without downloads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        container = self.buildah("from", "scratch")
        self.buildah("add", "-q", container, str(TARGET / "root-file-system"), "/")
        valkey = str(TARGET / "servers/valkey-8.1")
        self.buildah("add", "-q", container, valkey, "/usr/local/bin/valkey-server")
        self.buildah("commit", "-q", "--rm", container, BASE)

    def command(self, *words: str) -> list[str]:
        folders = ["--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run"]
        return ["buildah", *folders, "--storage-driver", "vfs", *words]

    def buildah(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words),
            env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def build(self, context: Path, dockerfile: Path) -> str:
        self.buildah(
            *("build", "-q", "--pull-never", "--build-arg", f"SERVER={BASE}"),
            *("-t", "localhost/built", "-f", str(dockerfile), str(context)),
        )
        return "localhost/built"

    @contextmanager
    def running(self, image: str, arguments: list[str] | None = None) -> Iterator[redis.Redis]:
        """Runs an image with a free port, by default its CMD. Yields a client of its server."""
        container = self.buildah("from", "--pull-never", image)
        cmd = arguments or json.loads(self.buildah("inspect", container))["OCIv1"]["config"]["Cmd"]
        port = free_port()
        server = subprocess.Popen(
            self.command("run", "--isolation=chroot", container, "--", *cmd, "--port", str(port)),
            stdout=subprocess.DEVNULL,
        )

        def answers() -> bool:
            assert server.poll() is None, "the server exited"
            try:
                return client.ping()
            except redis.ConnectionError:
                return False

        with redis.Redis(HOST, port) as client:
            wait_until(answers)
            yield client
            client.shutdown(nosave=True)
        server.wait()
        self.buildah("rm", container)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("images")
    yield Builder(folder)
    # pytest would keep the folder, in which each image is a full copy.
    shutil.rmtree(folder)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    (archive,) = DIST.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", archive, "-C", tmp_path], check=True)
    (folder,) = tmp_path.iterdir()
    return folder


def test_the_compose_file_builds_the_image_of_valkey_with_filters(builder, unpacked):
    text = (unpacked / "packaging/compose.yaml").read_text()
    assert len(text.splitlines()) == 6
    service = yaml.safe_load(text)["services"]["oxbloom"]
    assert service["ports"] == [f"{HOST}:6379:6379"]
    assert service["volumes"] == ["data:/data"]
    # Compose finds the context beside its own file, and the Dockerfile in the context.
    context = unpacked / "packaging" / service["build"]["context"]
    image = builder.build(context, context / service["build"]["dockerfile"])
    with builder.running(image) as client:
        assert client.bf().add("seen", "item") == 1
        assert client.info("server")["server_name"] == "valkey"


def test_the_container_of_the_page_runs_with_its_arguments(builder, unpacked):
    (text,) = pages.blocks(PAGE, "yaml")
    (container,) = yaml.safe_load(text)["containers"]
    assert container["image"].endswith(f"oxbloom:{version()}")
    (volume,) = container["volumeMounts"]
    image = builder.build(unpacked, unpacked / "packaging/Dockerfile")
    arguments = [word.replace(volume["mountPath"], "/tmp") for word in container["args"]]
    with builder.running(image, arguments) as client:
        assert client.bf().add("seen", "item") == 1
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_two_lines_add_oxbloom_to_an_own_image(builder, unpacked):
    (lines,) = pages.blocks(PAGE, "dockerfile")
    assert len(lines.splitlines()) == 2
    dockerfile = unpacked / "Dockerfile"
    dockerfile.write_text(f"FROM {BASE}\n{lines}")
    image = builder.build(unpacked, dockerfile)
    with builder.running(image) as client:
        assert client.bf().add("seen", "item") == 1
        assert "valkey_version" not in client.info("server")


def test_the_recipe_is_that_of_the_dockerfile():
    (lines,) = pages.blocks(PAGE, "dockerfile")
    dockerfile = (ROOT / "packaging/Dockerfile").read_text()
    assert dockerfile.endswith(lines.replace("redis-server", "valkey-server"))
