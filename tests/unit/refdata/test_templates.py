"""SQL of a configuration: what is a parameter in it, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.refdata import templates
from app.refdata.templates import ITEM, LOAD, TemplateRefused, compile_template


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("select :tenantId", "select %(tenantId)s"),
        ("select :payload->>'name'", "select (%(payload)s::jsonb)->>'name'"),
        ("select cast(:payload->>'n' as int)", "select cast((%(payload)s::jsonb)->>'n' as int)"),
        ("select 'a:key', :key", "select 'a:key', %(key)s"),
        ("select 'it''s :key', :key", "select 'it''s :key', %(key)s"),
        (r"select E'\':key', :key", r"select E'\':key', %(key)s"),
        (r"select '\', :key", r"select '\', %(key)s"),
        ('select ":key", :key', 'select ":key", %(key)s'),
        ("select $$:key$$, :key", "select $$:key$$, %(key)s"),
        ("select $a$ $$ :key $a$, :key", "select $a$ $$ :key $a$, %(key)s"),
        ("select a::text, :key::text", "select a::text, %(key)s::text"),
        ("select :key -- and :nothing\n", "select %(key)s -- and :nothing"),
        ("select /* :nothing */ :key", "select /* :nothing */ %(key)s"),
        ("select '100%', :key like '%a'", "select '100%%', %(key)s like '%%a'"),
        ("select 5 % 2", "select 5 %% 2"),
        ("select :key;  -- the end\n", "select %(key)s  -- the end"),
        ("select name$1:key", "select name$1%(key)s"),
        ("update t set x = :eventVersion", "update t set x = (%(eventVersion)s::bigint)"),
    ],
)
def test_parameters_are_bound_and_nothing_else_is_touched(text: str, sql: str) -> None:
    assert compile_template(text, ITEM).sql == sql


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("select 1,\n :nothing", 2, ":tenantId, :dictCode"),
        ("select :key", 1, ":key"),
        ("select 1; select 2", 1, "more than one"),
        ("select 1;\n\n;", 3, "more than one"),
        ("delete from t", 1, "DELETE"),
        ("insert into t values (1)", 1, "INSERT"),
        ("select 1\nfrom (delete from t returning 1) x", 2, "DELETE"),
        ("with gone as (delete from t returning *) select * from gone", 1, "DELETE"),
        ("select 1 into t", 1, "INTO"),
        ("truncate t", 1, "TRUNCATE"),
        ("do $$ begin end $$", 1, "DO"),
        ("explain select 1", 1, "EXPLAIN"),
        ("", 1, "empty"),
        ("-- nothing", 1, "empty"),
        ("/* select :key */", 1, "empty"),
    ],
)
def test_what_cannot_load_a_dictionary_is_refused_with_its_line(text: str, line: int, word: str) -> None:
    with pytest.raises(TemplateRefused, match=word) as refused:
        compile_template(text, LOAD, reads=True)
    assert refused.value.line == line


@pytest.mark.parametrize(
    "text",
    ["select deleted, updated_at from t", "values (1)", "table t", "with a as (select 1) select * from a"],
)
def test_what_reads_is_taken(text: str) -> None:
    assert compile_template(text, LOAD, reads=True).sql == text


@given(
    st.lists(
        st.sampled_from(
            ["'", '"', "$$", "$a$", "--", "/*", "*/", ":key", "::", "\n", "x", "E'", "\\", "%", ";", " "]
        )
    )
)
def test_whatever_stands_there_a_parameter_is_bound_or_the_text_is_refused(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        found = compile_template(text, ITEM)
    except TemplateRefused:
        return
    assert found.names <= {"key"}
    # Nothing but percent signs, parameters and the end of the statement differs from what was written.
    written = found.sql.replace("%%", "%").replace("%(key)s", ":key")
    assert written.replace(";", "").strip() == text.replace(";", "").strip()


def test_every_parameter_can_be_had_somewhere() -> None:
    everywhere = templates.LOAD | templates.ITEM | templates.SNAPSHOT | templates.CHUNK
    assert everywhere == set(templates.PARAMETERS)
