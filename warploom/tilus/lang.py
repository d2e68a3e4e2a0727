"""tilus.lang: what annotations of scripts name."""

from warploom.explicit.script import Class as Class
from warploom.runtime.script import Script as Script
