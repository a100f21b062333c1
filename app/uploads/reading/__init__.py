"""Reading an advertising report as its platform really exports it."""
