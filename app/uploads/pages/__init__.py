"""The pages that people use: upload, list, one upload live, data, templates, audit log."""

from __future__ import annotations

from app.uploads.pages import auditing, data, handing_in, live, looking, site

__all__ = ["BLUEPRINTS", "auditing", "data", "handing_in", "live", "looking", "site"]

BLUEPRINTS = (site.blueprint, live.blueprint)
"""What the web process serves; the modules named above have hung their routes on them."""
