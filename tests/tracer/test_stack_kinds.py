"""The kinds of stacks of a recording: each way in which one or both can be missing."""

import pytest

from tracer.probes.errors import FeatureMissing, PermissionMissing
from tracer.probes.events.sched import STACKS
from tracer.session.options import Listener
from tracer.session.stack_kinds import kinds

UNNAMED = PermissionMissing("no names", "take CAP_SYSLOG")
NO_LOOKS = FeatureMissing("no py-spy", "install it")


class Heard(Listener):
    """A listener that keeps what it is told."""

    def __init__(self):
        self.told = []

    def without_stacks(self, kind, why):
        self.told.append((kind, str(why)))


@pytest.mark.parametrize("event", STACKS)
def test_both_kinds_are_there(event):
    heard = Heard()
    found = kinds(["sched:sched_switch", event], None, None, heard)
    assert found == {"kinds": ["kernel", "python"], "missing": {}}
    assert heard.told == []


@pytest.mark.parametrize(
    ("events", "unnamed", "looks", "kept", "lacking"),
    [
        (STACKS[:1], None, NO_LOOKS, ["kernel"], {"python": "no py-spy; install it"}),
        ([], UNNAMED, None, ["python"], {"kernel": "no names; take CAP_SYSLOG"}),
    ],
)
def test_one_kind_is_missing_with_its_reason(events, unnamed, looks, kept, lacking):
    heard = Heard()
    assert kinds(events, unnamed, looks, heard) == {"kinds": kept, "missing": lacking}
    [(kind, why)] = heard.told
    assert {kind.lower(): why} == lacking


def test_a_kernel_that_records_no_stacks_is_a_reason():
    found = kinds(["sched:sched_switch"], None, None, Heard())
    assert found["kinds"] == ["python"]
    assert "--backend" in found["missing"]["kernel"]


def test_no_kind_at_all_is_refused_with_both_reasons():
    heard = Heard()
    with pytest.raises(FeatureMissing) as refused:
        kinds([], UNNAMED, NO_LOOKS, heard)
    assert "no names" in refused.value.what
    assert "no py-spy" in refused.value.what
    assert refused.value.mend == "install it"
    assert heard.told == []
