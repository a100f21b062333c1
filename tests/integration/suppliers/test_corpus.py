"""Real lists, hostile ones, and sequences of them: what each must lead to.

The lists may not be copied. Where they are not at hand, these tests are left out by name, and the look-alikes
of the other tests hold the same traps.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.suppliers import config, dq, durable, requeue
from app.suppliers.extract import extract
from app.suppliers.failures import SupplierFailure
from tests.integration.suppliers.tree import Tree, merged, tree

CORPUS = Path(
    os.environ.get("HEADWORKS_SUPPLIER_CORPUS")
    or Path(__file__).resolve().parents[4] / "shared" / "corpus" / "suppliers"
)

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the suppliers' lists are not at {CORPUS.name}")


def stored(name: str) -> Any:
    path = CORPUS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


CASES: list[dict[str, Any]] = stored("expected.json") or []
HOSTILE: list[dict[str, Any]] = stored("hostile/expected.json").get("files", [])
BAD_CONFIGS: list[dict[str, Any]] = stored("hostile/expected.json").get("configs", [])
SEQUENCES: list[dict[str, Any]] = stored("sequences.json").get("sequences", [])


def name_of(case: dict[str, Any]) -> str:
    return f"{Path(case['file'] or 'none').name} as {case['supplier']}"


def read(case: dict[str, Any], into: Path) -> tuple[Any, list[dict[str, Any]], tuple[str, ...]]:
    """What reading the file gives: counts, facts, and the checks that fail."""
    rules = config.load(CORPUS / "configs" / f"{case['supplier']}.yaml", case["supplier"])
    found = extract(CORPUS / case["file"], into=into, config=rules, run_id="test_20260101T000000Z_000000")
    lines = (into / "facts.ndjson").read_text(encoding="utf-8").splitlines()
    return found, [json.loads(line) for line in lines], dq.judge(found, rules).failed_checks


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_list_leads_to_what_is_expected(case: dict[str, Any], tmp_path: Path) -> None:
    try:
        found, facts, failed = read(case, tmp_path)
    except SupplierFailure as failure:
        assert (failure.code, failure.stage) == (case["reason_code"], case["fail_stage"])
        return
    assert (failed[0] if failed else None) == case["reason_code"]
    assert list(failed) == case.get("failed_checks", [])
    payloads = [fact["payload"] for fact in facts]
    assert {
        "total": found.total_rows, "good": found.good_rows, "bad": found.bad_rows,
        "skipped": found.skipped_rows, "facts": len(facts),
    } == case["counts"]  # fmt: skip
    assert found.bad_by_reason == case["bad_by_reason"]
    assert found.skipped_by_reason == case["skipped_by_reason"]
    assert found.by_category == (case["categories"] or {})
    assert found.skus == case["skus"] and found.price_rounded == case["price_rounded"]
    assert sum(payload["price_minor"] for payload in payloads) == case["price_minor_sum"]
    assert sum(payload["qty"] for payload in payloads) == case["qty_sum"]
    assert sum(payload["qty_min"] for payload in payloads) == case["qty_min_facts"]
    assert [{"code": code, "subject": subject} for code, subject in found.alerts] == case.get("alerts", [])
    for spot in case["spot_checks"]:
        check(spot, facts)


def check(spot: dict[str, Any], facts: list[dict[str, Any]]) -> None:
    of_sku = [
        fact
        for fact in facts
        if fact["payload"]["sku"] == spot["sku"]
        and spot.get("warehouse") in (None, fact["payload"].get("warehouse"))
    ]
    if spot["field"] == "absent":
        assert of_sku == [], spot
        return
    values = [{**fact["payload"], "category_key": fact["category_key"]}[spot["field"]] for fact in of_sku]
    assert values and set(values) == {spot["value"]}, spot


def test_equal_content_has_one_hash(tmp_path: Path) -> None:
    groups: dict[str, set[str]] = defaultdict(set)
    for number, case in enumerate(CASES):
        if case.get("content_group"):
            (into := tmp_path / str(number)).mkdir()
            groups[case["content_group"]].add(read(case, into)[0].content_sha256)
    assert len(groups) >= 7
    assert {group: len(hashes) for group, hashes in groups.items()} == dict.fromkeys(groups, 1)
    assert len(set.union(*groups.values())) == len(groups)


@pytest.mark.parametrize("case", HOSTILE, ids=name_of)
def test_a_hostile_list_does_no_harm(case: dict[str, Any], tmp_path: Path) -> None:
    mine = tree(tmp_path, configs=CORPUS / "configs").of(case["supplier"])
    name = Path(case["file"]).name
    inbox = mine.layout.inbox(mine.supplier)
    inbox.mkdir(parents=True)
    shutil.copyfile(CORPUS / case["file"], inbox / name)
    mine.services.clock.ahead += timedelta(seconds=60)  # type: ignore[attr-defined]
    outcome = mine.run()
    if case["outcome"] == "IGNORED":
        assert (outcome.status, mine.files(inbox)) == ("NOOP", [name])
        return
    allowed = case.get("reason_code_any_of", [])
    if outcome.status == "FAIL":
        assert case["outcome"] != "PASS" and outcome.reason_code in allowed
        assert mine.published() is None
        return
    assert case["outcome"] != "FAIL"
    told = mine.manifest(outcome.run_id)
    assert told["facts"] == case["counts"]["facts"]
    payloads = [fact["payload"] for fact in mine.published() or []]
    assert sum(payload["price_minor"] for payload in payloads) == case["price_minor_sum"]
    assert sum(payload["qty"] for payload in payloads) == case["qty_sum"]


@pytest.mark.parametrize("case", BAD_CONFIGS, ids=name_of)
def test_a_bad_config_is_refused(case: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SupplierFailure) as caught:
        config.load(CORPUS / (case["file"] or "nobody.yaml"), case["supplier"])
    assert (caught.value.code, caught.value.stage) == (case["reason_code_any_of"][0], case["fail_stage"])


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs that are too large or too odd to be kept."""
    folder = tmp_path_factory.mktemp("made")
    script = CORPUS / "hostile" / "make_more.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, timeout=300)
    return folder


BOMBS = ["bomb_spaces.xlsx", "bomb_cells.xlsx", "bomb_csv.zip", "many_entries.zip"]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_read(name: str, made: Path, tmp_path: Path) -> None:
    rules = config.load(CORPUS / "configs" / "hostile.yaml", "hostile")
    with pytest.raises(SupplierFailure) as caught:
        extract(made / name, into=tmp_path, config=rules, run_id="r")
    assert caught.value.code == "FILE_TOO_LARGE"


def test_odd_entries_are_left_alone_and_odd_names_are_read(made: Path, tmp_path: Path) -> None:
    mine = tree(tmp_path, configs=CORPUS / "configs").of("hostile")
    inbox = mine.layout.inbox("hostile")
    shutil.copytree(
        made, inbox, symlinks=True, ignore=lambda _, names: [*BOMBS, "pipe.csv", "unreadable.csv"]
    )
    os.mkfifo(inbox / "pipe.csv")
    mine.services.clock.ahead += timedelta(seconds=60)  # type: ignore[attr-defined]
    plain = [
        path
        for path in inbox.iterdir()
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    ]
    runs = 0
    for path in sorted(plain, key=lambda found: found.stat().st_mtime_ns):
        aside = tmp_path / "aside"
        aside.mkdir(exist_ok=True)
        for other in plain:
            if other != path and other.exists():
                other.rename(aside / other.name)
        outcome = mine.run()
        assert outcome.status == "PASS", path
        assert {"INBOX_ODD_ENTRY"} <= {alert.code for alert in outcome.alerts}
        runs += 1
        for other in plain:
            if (aside / other.name).exists():
                (aside / other.name).rename(other)
    assert runs == 10
    left = sorted(path.name for path in inbox.iterdir())
    assert left == [".hidden.csv", "folder.csv", "link_dangling.csv", "link_outside.csv", "pipe.csv"]


# -- sequences

PLACES = {
    "archive": "archive/{}", "obsolete": "archive/{}/obsolete", "duplicates": "quarantine/{}/duplicates",
    "broken": "quarantine/{}/broken", "inbox": "inbox/{}",
}  # fmt: skip


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence["name"])
def test_a_sequence_publishes_what_is_expected(sequence: dict[str, Any], tmp_path: Path) -> None:
    mine = tree(tmp_path).of(sequence["supplier"])
    rules = yaml.safe_load((CORPUS / sequence["config"]).read_text()) if sequence.get("config") else None
    if rules is not None:
        rules = merged({**rules, "file_stability_window": 0}, sequence.get("config_patch", {}))
    for step in sequence["steps"]:
        if rules is not None:
            rules = merged(rules, step.get("config_patch", {}))
            mine.write_config(rules)
        arrive(mine, step)
        compare(mine, mine.run(), step["expect"])


def arrive(mine: Tree, step: dict[str, Any]) -> None:
    for one in step.get("put", []):
        mtime = None
        if one["mtime"]:
            mtime = datetime.fromisoformat(one["mtime"].replace("Z", "+00:00")).timestamp()
        elif one.get("age_s"):
            mtime = time.time() - one["age_s"]
        mine.put((CORPUS / one["file"]).read_bytes(), one["as"], mtime=mtime)
    for name in step.get("requeue", []):
        requeue.requeue(mine.services, mine.supplier, name, who="tests", why="a config change")
    time.sleep(step.get("wait_s", 0))


def compare(mine: Tree, outcome: Any, expected: dict[str, Any]) -> None:
    assert outcome.status == expected["run"]
    for key, got in (("reason_code", outcome.reason_code), ("fail_stage", outcome.fail_stage)):
        if key in expected:
            assert got == expected[key]
    current = mine.services.states.current(mine.supplier)
    published = mine.published()
    assert (len(published) if published is not None else None) == expected["facts"]
    if current:
        assert current.input_sha256 == durable.sha256_of(CORPUS / expected["published"])
    raised = {alert.code for alert in outcome.alerts}
    assert set(expected.get("alerts", [])) <= raised
    assert not raised & set(expected.get("no_alerts", []))
    for name, place in expected["moved"].items():
        folder = mine.layout.root / PLACES[place].format(mine.supplier)
        stem, end = Path(name).stem, Path(name).suffix
        assert any(stem in found and found.endswith(end) for found in mine.files(folder)), (name, place)
    if "content_unchanged" in expected:
        assert mine.manifest(outcome.run_id)["content_unchanged"] == expected["content_unchanged"]
