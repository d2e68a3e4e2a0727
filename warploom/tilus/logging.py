"""tilus.logging: Python's, under this package's name."""

from __future__ import annotations

import logging

logger = logging.getLogger("warploom.tilus")


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def set_logging_level(level: int | str) -> None:
    logger.setLevel(level)
