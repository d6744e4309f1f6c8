"""The catalogue: what is known, what is not, and what a user's file may not say."""

import math

import pytest

from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.devices.parameters import PARAMETERS, UNITS, base_unit
from tracer.probes.errors import UsageError

GOOD = '{ value = 8, unit = "ms", confidence = "measured", source = "here" }'


def load(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return devices.catalogue(path)


def test_every_parameter_says_where_it_is_from():
    for device in devices.catalogue().values():
        assert device.parameters
        for parameter in device.parameters.values():
            assert len(parameter.source) > 10
            assert parameter.confidence != "measured"


def test_the_papers_devices_are_the_papers():
    assert devices.find_device("hdd-paper", "disk").write_ns == 8_000_000
    assert devices.find_device("pcm-paper", "nvm").write_ns == 350
    assert devices.find_device("pcm-paper", "nvm").confidence == "paper"


def test_a_random_write_of_a_disk_is_seek_half_a_turn_and_transfer():
    # 8.2 ms + 4.1667 ms + 4096 B / 150 MB/s
    assert devices.find_device("hdd-7200", "disk").write_ns == 8_200_000 + 4_166_667 + 27_307 - 1
    assert devices.find_device("hdd-7200", "disk").read_ns == 7_400_000 + 4_166_667 + 27_307 - 1


def test_unknown_parameters_are_none_and_never_guessed():
    toshiba = devices.find_device("dt01aca100", "disk")
    assert toshiba.value("seek_write") is None
    with pytest.raises(UsageError, match="dt01aca100 has no write_latency"):
        _ = toshiba.write_ns
    with pytest.raises(UsageError, match="pcm-paper has no read_latency"):
        _ = devices.find_device("pcm-paper", "nvm").read_ns


def test_an_interval_has_two_ends_and_a_middle():
    pcm = devices.find_device("pcm-generic", "nvm")
    assert pcm.interval("endurance") == (1e8, 1e12)
    assert pcm.interval("read_latency") == (50, 50)
    assert pcm.interval("grain") is None
    assert pcm.write_ns == 125
    assert (pcm.at("low").write_ns, pcm.at("high").write_ns) == (100, 150)
    assert pcm.at("middle") is pcm


def test_a_bound_is_open_on_its_side():
    assert devices.find_device("stt-mram", "nvm").interval("endurance") == (1e16, math.inf)
    assert devices.find_device("optane-ssd-p4800x", "nvm").interval("write_latency") == (0, 10_000)


def test_an_ssd_can_be_disk_and_medium():
    assert devices.find_device("ssd-nvme", "disk") is devices.find_device("ssd-nvme", "nvm")


def test_unknown_devices_are_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"no disk 'floppy'; known: hdd-paper, hdd-7200"):
        devices.find_device("floppy", "disk")
    with pytest.raises(UsageError, match="no disk 'pcm-paper'"):
        devices.find_device("pcm-paper", "disk")
    with pytest.raises(UsageError, match="no nvm 'dm-writecache-pmem'"):
        devices.find_device("dm-writecache-pmem", "nvm")


def test_units_become_one():
    assert base_unit("capacity") == "B"
    assert base_unit("high_watermark") == ""
    assert devices.find_device("hdd-7200", "disk").value("bandwidth_read") == 150e6
    assert devices.find_device("dm-writecache-ssd", "destage").value("high_watermark") == 0.5
    assert {p.quantity for p in PARAMETERS.values()} <= set(UNITS)


def test_a_users_device_is_one_of_the_catalogue(tmp_path):
    text = f'[mine]\nkind = "disk"\nread_latency = {GOOD}\nwrite_latency = {GOOD}\n'
    assert load(tmp_path, text)["mine"].write_ns == 8_000_000
    assert "hdd-paper" in load(tmp_path, text)
    assert "mine" not in devices.catalogue()
    assert devices.find_device("mine", "disk", tmp_path / "mine.toml").read_ns == 8_000_000


def test_a_name_of_ours_is_not_taken(tmp_path):
    with pytest.raises(
        UsageError, match=r"mine.toml: \[hdd-paper\] is the name of a built-in device"
    ):
        load(tmp_path, f'[hdd-paper]\nkind = "disk"\nwrite_latency = {GOOD}\n')


def value(number, unit="ms", **more):
    rest = "".join(f", {key} = {text}" for key, text in more.items())
    return (
        f'{{ value = {number}, unit = "{unit}", confidence = "measured", source = "here"{rest} }}'
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"write_latency = {value('nan')}", "write_latency: value .*finite number, not nan"),
        (f"write_latency = {value('inf')}", "write_latency: value .*finite number, not inf"),
        (f"write_latency = {value(-8)}", "write_latency: value .*greater than or equal to 0"),
        (f"write_latency = {value('[1, nan]')}", "write_latency: value .*finite number"),
        (f"write_latency = {value('[9, 8]')}", r"write_latency: \[9, 8\] is not an interval"),
        (f"write_latency = {value('[1, 2, 3]')}", "write_latency: value tuple should have at most"),
        (f"write_latency = {value('true')}", "write_latency: value .*valid number, not True"),
        (f"write_latency = {value(repr('8'))}", "write_latency: value .*valid number, not '8'"),
        (f"write_latency = {value(1e12)}", r"write_latency: 1e\+12 ms cannot be"),
        (f"write_latency = {value(8, 'MB/s')}", "write_latency: 'MB/s' is not a unit of time"),
        (f"write_latency = {value(8, 'parsec')}", "'parsec' is not a unit of time; give one of ns"),
        (f"write_latency = {value(0)}", "write_latency: 0 cannot be"),
        (f"write_latency = {value('[0, 8]')}", "write_latency: 0 cannot be"),
        (f"bandwidth_read = {value(0, 'MB/s')}", "bandwidth_read: 0 cannot be"),
        (f"write_latency = {value(8, colour=1)}", "write_latency: colour extra inputs"),
        (
            f"write_latency = {value('[1, 2]', bound=repr('least'))}",
            "an interval cannot have a bound",
        ),
        (f"write_latency = {value(1, bound=repr('about'))}", "write_latency: bound"),
        ('write_latency = { value = 8, unit = "ms", source = "x" }', "confidence field required"),
        ("write_latency = 8", "write_latency: input should be"),
        (
            f"write_latenzy = {GOOD}",
            "write_latenzy: a device of kind disk has no such parameter; known:",
        ),
        (
            f"endurance = {value(8, 'cycles')}",
            "endurance: a device of kind disk has no such parameter",
        ),
    ],
)
def test_a_catalogue_with_impossible_values_is_refused(tmp_path, line, said):
    with pytest.raises(UsageError, match=rf"mine.toml: \[mine\] .*{said}") as raised:
        load(tmp_path, f'[mine]\nkind = "disk"\n{line}\n')
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("line", [value(0.3, "ns"), value(0.4, "ns")])
def test_a_disk_that_writes_a_page_in_no_time_is_refused(tmp_path, line):
    disk = load(tmp_path, f'[mine]\nkind = "disk"\nwrite_latency = {line}\n')["mine"]
    with pytest.raises(UsageError, match=r"mine takes 0 ns for a write of a page; .*1 ns or more"):
        _ = disk.write_ns


def test_a_medium_may_take_no_time_until_the_first_byte_of_a_write(tmp_path):
    """`tracer calibrate` says so if a page takes no longer than its transfer."""
    lines = f"write_latency = {value(0)}\nbandwidth_write = {value(1, 'GB/s')}\n"
    assert load(tmp_path, f'[mine]\nkind = "nvm"\n{lines}')["mine"].write_ns == 4096


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind = 1", "kind is outside of any device"),
        ('[mine]\nkind = "tape"', r"\[mine\] kind: input should be 'disk', 'ssd', 'nvm' or"),
        ("[mine]", r"\[mine\] kind: input should be"),
        ("[mine", "is not TOML"),
        ('[mine]\nkind = "disk"\ndoc = 5', r"\[mine\] doc: input should be a valid string"),
        ("x = " + "[" * 100_000, "is not TOML"),
        ("x = " + "9" * 5000, "is not TOML"),
        ("#" * (1 << 20) + "#", "longer than 1048576 bytes"),
    ],
)
def test_a_file_that_is_not_a_catalogue_is_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said) as raised:
        load(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*nothing\.toml: No such file"):
        devices.catalogue(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        devices.catalogue(tmp_path / "bytes.toml")
