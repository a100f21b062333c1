"""The pages of docs/reference, made from the code itself: `./scripts/reference` writes them."""
