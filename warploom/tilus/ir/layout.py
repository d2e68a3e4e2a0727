"""tilus.ir.layout: register layouts of threads and registers."""

from warploom.layout.modes import RegisterLayout as RegisterLayout
from warploom.layout.modes import auto_local_spatial as auto_local_spatial
from warploom.layout.modes import column_local as column_local
from warploom.layout.modes import column_spatial as column_spatial
from warploom.layout.modes import compose as compose
from warploom.layout.modes import local as local
from warploom.layout.modes import reduce as reduce
from warploom.layout.modes import spatial as spatial
