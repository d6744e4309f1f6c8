"""Names that are no UTF-8: every byte can be had again, and no two names become one."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tracer.store.checked import encoded
from tracer.store.names import escaped, original

PIECES = st.sampled_from(
    [b"\\", b"x", b"5c", b"x5c", b"80", b"ff", b"\xff", b"\xc3", b"\xc3\xa9", b"a"]
)


@given(st.lists(PIECES, max_size=8).map(b"".join))
@example(rb"\x5cx5cx80")
@example(rb"system-systemd\x2dfsck.slice")
def test_a_name_is_told_by_its_text(name):
    text = escaped(name)
    assert original(text) == name
    assert text.encode().decode() == text


def test_a_name_that_is_utf_8_is_itself():
    assert escaped(rb"a\x2db \ c".decode()) == rb"a\x2db \ c".decode()
    assert escaped("é\n") == "é\n"


def test_a_byte_that_is_no_utf_8_is_an_escape_in_json():
    assert json.loads(encoded({"a\udcff": ["b\udc80"]})) == {"a\\xff": ["b\\x80"]}
