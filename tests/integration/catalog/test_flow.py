"""The way of every target from the API to its tables."""

from __future__ import annotations

from tests.integration.catalog.world import World


def codes(world: World, count: int) -> list[str]:
    return sorted(world.api.ids("item"))[:count]


def test_a_new_item_is_stored_and_applied_and_then_left_alone(world: World) -> None:
    some = codes(world, 5)
    first = world.run("JOB-I-01", only=some)
    assert (first.status, first.summary["outcomes"]) == ("success", {"applied": 5})
    ledger, tables = (
        world.table("staging"),
        [world.table(name) for name in ("item", "item_image", "item_tag")],
    )
    second = world.run("JOB-I-01", only=some)
    assert second.summary["outcomes"] == {"unchanged": 5}
    assert world.table("staging") == ledger
    assert [world.table(name) for name in ("item", "item_image", "item_tag")] == tables
    assert len(world.raw_objects()) == 5
