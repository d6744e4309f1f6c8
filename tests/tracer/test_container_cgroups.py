"""Containers by their cgroups: by an id in the path, by the engine's configuration."""

import pytest

from tracer.probes.cgroups import Containers, container_id
from tracer.targets.engines.bundle import is_own

ONE, TWO = "1" * 64, "2" * 64


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/docker/{ONE}", ONE),
        (f"/system.slice/docker-{ONE}.scope/init", ONE),
        (f"/machine.slice/libpod-{ONE}.scope/container", ONE),
        (f"/libpod_parent/libpod-{ONE}", ONE),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ONE}.scope", ONE),
        (f"/docker/{ONE}/docker/{TWO}", TWO),
        (f"/machine.slice/libpod-conmon-{ONE}.scope", None),
        (f"/machine.slice/crio-conmon-{ONE}.scope", None),
        (f"/docker/{ONE}0", None),
        ("/", None),
        (None, None),
    ],
)
def test_an_id_in_a_path_names_the_container(path, expected):
    assert container_id(path) == expected
    assert Containers([]).of(path) == expected


def test_the_innermost_of_known_cgroups_and_ids_names_the_container():
    known = Containers(
        [
            {"id": "default/job", "name": "job", "cgroup": "/default/job"},
            {"id": ONE, "name": "outer", "cgroup": f"/docker/{ONE}"},
            {
                "id": "ns/in",
                "name": "in",
                "cgroup": None,
                "cgroups": [f"/docker/{ONE}/ns/in", "/b"],
            },
            {"id": "none", "name": "none", "cgroup": "/"},
        ]
    )
    assert known.of("/default/job") == "default/job"
    assert known.of("/default/job/init.scope") == "default/job"
    assert known.of("/default/jobs") is None
    assert known.of(f"/default/job/docker/{TWO}") == TWO
    assert known.of(f"/docker/{ONE}/ns/in/x") == "ns/in"
    assert known.of(f"/docker/{ONE}/ns") == ONE
    assert known.of("/b") == "ns/in"
    assert known.of("/elsewhere") is None
    assert (known.name("ns/in"), known.name(ONE), known.name(TWO)) == ("in", "outer", None)
    assert known.name(None) is None


@pytest.mark.parametrize(
    ("path", "given", "identity", "expected"),
    [
        ("/default/job", "/default/job", "job", True),
        ("/outer/default/job", "/default/job", "job", True),
        ("/default", "/default/job", "job", False),
        ("/other/job", "/default/job", "job", False),
        ("/default/a", "", "a", False),
        ("/user.slice/job", "job", "job", True),
        ("/system.slice/podman-web.scope", "system.slice:podman:web", "web", True),
        ("/system.slice/web.scope", "system.slice::web", "web", True),
        ("/system.slice/podman-web", "system.slice:podman:web", "web", False),
        ("/system.slice", "system.slice:podman:", "", False),
        (f"/kubepods/pod1/{ONE}", f"/elsewhere/{ONE}", ONE, True),
        (f"/kubepods/pod1/{TWO}", "/", ONE, False),
        ("/", "/", "a", False),
    ],
)
def test_a_configuration_names_the_containers_cgroup(path, given, identity, expected):
    assert is_own(path, given, identity) is expected
