"""The header in which a proxy says whose certificate it has seen."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.refdata import client_certs

READ = [
    # header                                     elements
    ("URI=a", ((("uri", "a"),),)),
    ("By=a;URI=b", ((("by", "a"), ("uri", "b")),)),
    ("uri=a,URI=b", ((("uri", "a"),), (("uri", "b"),))),
    ("URI=a , URI=b", ((("uri", "a"),), (("uri", "b"),))),
    ("DNS=a;DNS=b", ((("dns", "a"), ("dns", "b")),)),
    ("URI=", ((("uri", ""),),)),
    ("URI=a?b=c", ((("uri", "a?b=c"),),)),
    ('Subject=""', ((("subject", ""),),)),
    ('Subject="a,b;c=d";URI=e', ((("subject", "a,b;c=d"), ("uri", "e")),)),
    (r'Subject="a\"b\\"', ((("subject", 'a"b\\'),),)),
    (r'Subject="CN=a\, b"', ((("subject", r"CN=a\, b"),),)),  # RFC 2253, as Envoy passes it on
    (r'Subject="\",URI=x"', ((("subject", '",URI=x'),),)),
    (r'Subject="\\",URI=x', ((("subject", "\\"),), (("uri", "x"),))),
]


@pytest.mark.parametrize(("value", "expected"), READ)
def test_every_element_is_read(value: str, expected: tuple[client_certs.Element, ...]) -> None:
    assert client_certs.elements(value) == expected


MALFORMED = [
    "",
    " ",
    ",",
    ";",
    "URI",
    "=a",
    "URI=a,",
    ",URI=a",
    "URI=a;",
    ";URI=a",
    "URI=a,,URI=b",
    "URI=a;;URI=b",
    'URI="a',
    'URI="a\\"',
    'URI="a"b',
    'URI="a""b"',
    'URI=a"b"',
    'URI=a"By=b',
    'URI="a"xBy=b',
    'URI="a" By=b',
    'URI=a"',
    "URI =a",
    "U RI=a",
    '"URI"=a',
    '[{"URI":"a"}]',
    "URI=a" + "x" * client_certs.MOST_CHARACTERS,
]


@pytest.mark.parametrize("value", MALFORMED)
def test_what_is_not_of_the_grammar_is_refused(value: str) -> None:
    with pytest.raises(client_certs.Malformed):
        client_certs.elements(value)


Written = list[list[tuple[str, str, bool]]]
"""Elements of pairs: key, value, and whether the value is quoted without need."""


def encoded(elements: Written) -> str:
    """The header for these elements, as Envoy's documentation says: written apart from the reader."""
    written = []
    for element in elements:
        pairs = []
        for key, value, quoted in element:
            if quoted or set(value) & set('",;') or value != value.strip(" \t"):
                value = '"' + "".join("\\" + one if one in '"\\' else one for one in value) + '"'
            pairs.append(key + "=" + value)
        written.append(";".join(pairs))
    return ",".join(written)


KEYS = st.sampled_from(["By", "Hash", "Cert", "Chain", "Subject", "URI", "DNS", "uri"])
VALUES = st.text(st.sampled_from('ab,;="\\ \t/:é'), max_size=8)
ELEMENTS = st.lists(
    st.lists(st.tuples(KEYS, VALUES, st.booleans()), min_size=1, max_size=4), min_size=1, max_size=4
)


@given(ELEMENTS)
def test_what_is_written_by_the_grammar_is_read_as_it_was(
    elements: list[list[tuple[str, str, bool]]],
) -> None:
    expected = tuple(tuple((key.lower(), value) for key, value, _ in element) for element in elements)
    assert client_certs.elements(encoded(elements)) == expected


PROXY = 'By=spiffe://prod/proxy;Hash=00;Subject="";URI=spiffe://prod/client'


@given(st.text(st.sampled_from('URI=",;\\ Subjectx'), max_size=40))
@example('Subject="')
@example('Subject="\\')
@example("URI=x;")
@example('URI=spiffe://prod/victim;Subject="')
def test_whatever_a_client_writes_first_the_last_element_is_the_proxys(written: str) -> None:
    """Or the header is refused: it never is the client's word for the proxy's."""
    try:
        found = client_certs.elements(f"{written},{PROXY}")
    except client_certs.Malformed:
        return
    assert found[-1] == client_certs.elements(PROXY)[0]


@given(st.text(max_size=60))
def test_nothing_breaks_the_reader(value: str) -> None:
    try:
        found = client_certs.elements(value)
    except client_certs.Malformed:
        return
    assert all(re.fullmatch("[a-z][a-z0-9_-]*", key) for element in found for key, _ in element)


def test_a_hostile_header_is_read_in_a_moment() -> None:
    """Each character is looked at once: a slow grammar would not end within the test's time."""
    for part in ('"\\', "a=", 'a="', ";", '\\"', " "):
        value = ('a="' + part * client_certs.MOST_CHARACTERS)[: client_certs.MOST_CHARACTERS]
        try:
            client_certs.elements(value)
        except client_certs.Malformed:
            continue
