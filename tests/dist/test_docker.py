"""Builds the Dockerfiles of the release, and runs their images, with buildah.

The public images are not downloaded. Our own Debian with the servers replaces them. It is as old as they are, or older.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import kubernetes_validate
import pages
import pytest
import redis
import yaml
from conftest import DIST, EMULATED, PAGE, PROCESSORS, TARGET, built, version
from servers import HOST, ROOT, free_port, running, wait_until

BASE = "localhost/server"
KUBERNETES = (ROOT / "docs/kubernetes.md").read_text()


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

    def build(self, context: Path, dockerfile: Path, *options: str, server: str = BASE) -> str:
        self.buildah(
            *("build", "-q", "--pull-never", "--build-arg", f"SERVER={server}", *options),
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
    (archive,) = built("*.tar.gz")
    return unpack(archive, tmp_path)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive of the release. Returns its folder."""
    subprocess.run(["tar", "xzf", archive, "-C", folder], check=True)
    return folder / archive.name.removesuffix(".tar.gz")


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


def test_the_manifests_of_kubernetes_have_valid_fields():
    service, stateful = yaml.safe_load_all(pages.blocks(KUBERNETES, "yaml")[0])
    with_image_volume = deepcopy(stateful)
    pod = with_image_volume["spec"]["template"]["spec"]
    del pod["initContainers"]
    (volumes,) = re.findall(r"`(volumes: .*?)`", " ".join(KUBERNETES.split()))
    pod |= yaml.safe_load(volumes)
    for manifest in (service, stateful, with_image_volume):
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_the_containers_of_kubernetes_copy_the_module_and_start_a_server(
    builder, unpacked, tmp_path
):
    _, stateful = yaml.safe_load_all(pages.blocks(KUBERNETES, "yaml")[0])
    pod = stateful["spec"]["template"]["spec"]
    ((init,), (server,)) = pod["initContainers"], pod["containers"]
    dockerfile = unpacked / "packaging/Dockerfile"

    assert init["image"].endswith(f"oxbloom-module:{version()}")
    (mount,) = init["volumeMounts"]
    modules = tmp_path / "modules"
    modules.mkdir()
    container = builder.buildah("from", builder.build(unpacked, dockerfile, "--target", "module"))
    config = json.loads(builder.buildah("inspect", container))["OCIv1"]["config"]
    command = [*config["Entrypoint"], *config["Cmd"]]
    # A container that starts again finds the file of its last start.
    for _ in range(2):
        builder.buildah(
            "run",
            "--isolation=chroot",
            "-v",
            f"{modules}:{mount['mountPath']}",
            container,
            "--",
            *command,
        )
    builder.buildah("rm", container)
    copy = modules / "liboxbloom.so"
    assert copy.read_bytes() == (unpacked / "liboxbloom.so").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o755
    assert list(modules.iterdir()) == [copy]

    assert mount["mountPath"] in {volume["mountPath"] for volume in server["volumeMounts"]}
    folders = {mount["mountPath"]: "/usr/lib/oxbloom", "/data": "/tmp"}
    arguments = [
        folders.get(word, word).replace(f"{mount['mountPath']}/", "/usr/lib/oxbloom/")
        for word in server["args"]
    ]
    with builder.running(builder.build(unpacked, dockerfile), arguments) as client:
        assert client.bf().add("seen", "item") == 1
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_the_values_of_charts_are_those_of_the_stateful_set():
    manifests, *charts = pages.blocks(KUBERNETES, "yaml")
    _, stateful = yaml.safe_load_all(manifests)
    pod = stateful["spec"]["template"]["spec"]
    valkey, bitnami = map(yaml.safe_load, charts)
    assert "livenessProbe" not in pod["containers"][0]
    for values, init in ((valkey, "extraInitContainers"), (bitnami["master"], "initContainers")):
        assert values["livenessProbe"] == {"enabled": False}
        assert values[init] == pod["initContainers"]
        assert values["extraVolumes"] == pod["volumes"]
        assert values["extraVolumeMounts"] == pod["initContainers"][0]["volumeMounts"]
    module = pod["containers"][0]["args"][-1]
    for configuration in (valkey["valkeyConfig"], bitnami["commonConfiguration"]):
        assert configuration == f"appendonly yes\nloadmodule {module}\n"


def test_a_server_for_musl_loads_the_module_of_the_archive(builder, unpacked):
    base = builder.buildah("from", "scratch")
    builder.buildah("add", "-q", base, str(TARGET / "servers/redis-7.0-musl-x86_64.root"), "/")
    builder.buildah("commit", "-q", "--rm", base, "localhost/musl")
    dockerfile = unpacked / "packaging/Dockerfile"
    image = builder.build(unpacked, dockerfile, server="localhost/musl")
    arguments = ["/redis-server", "--loadmodule", "/usr/lib/oxbloom/liboxbloom.so"]
    with builder.running(image, arguments) as client:
        assert client.bf().add("seen", "item") == 1


def image_of_the_module(builder: Builder, processor: str, folder: Path) -> str:
    (archive,) = DIST.glob(f"*-linux-{processor}.tar.gz")
    context = unpack(archive, folder)
    options = ["--target", "module", "--platform", f"linux/{PROCESSORS[processor]}"]
    return builder.build(context, context / "packaging/Dockerfile", *options)


def test_the_images_of_both_processors_can_be_joined(builder, tmp_path):
    builder.buildah("manifest", "create", "localhost/joined")
    for processor in PROCESSORS:
        image = image_of_the_module(builder, processor, tmp_path)
        builder.buildah("manifest", "add", "localhost/joined", image)
    joined = json.loads(builder.buildah("manifest", "inspect", "localhost/joined"))
    platforms = [image["platform"]["architecture"] for image in joined["manifests"]]
    assert platforms == list(PROCESSORS.values())


def test_the_image_for_aarch64_copies_a_module_that_a_server_loads(builder, tmp_path):
    container = builder.buildah("from", image_of_the_module(builder, "aarch64", tmp_path))
    root = builder.buildah("mount", container)
    copy = [f"{root}/oxbloom/copy", str(tmp_path)]
    subprocess.run(["qemu-aarch64-static", "-L", root, *copy], check=True)
    builder.buildah("rm", container)
    for server in EMULATED:
        with running(str(tmp_path / "liboxbloom.so"), program=str(server)) as emulated:
            assert emulated.client.bf().add("seen", "item") == 1


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
