"""Peers that only the project needs; those of the package (`warploom/bench/peers`) are found here too."""

import warploom.bench.peers

__path__ = [*__path__, *warploom.bench.peers.__path__]
