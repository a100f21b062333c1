"""A local server that gives recorded answers of the Rakuten web services over real HTTP.

Tests and `headworks catalog demo` talk to it in place of the real hosts. By module:

* `recordings` reads `recordings.zip` and takes its answers apart into items, rankings, genres and tags;
* `shapes` turns an answer of formatVersion 1 into 2 and back;
* `answers` decides what a request is answered with, as the real API does;
* `faults` are the ways in which an answer goes wrong, as data;
* `server` puts both on a socket;
* `invented` makes up as many further items as a load test wants;
* `packing` builds `recordings.zip` from a folder of recordings.

`python -m app.catalog.replay` serves until Ctrl-C.
"""
