"""Pure decisions: standard library only, no clock, no environment, no input or output."""
