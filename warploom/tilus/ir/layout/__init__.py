"""tilus.ir.layout: register layouts of threads and registers."""

from warploom.explicit.layouts import SharedLayout as SharedLayout
from warploom.layout.modes import RegisterLayout as RegisterLayout
from warploom.layout.modes import auto_local_spatial as auto_local_spatial
from warploom.layout.modes import column_local as column_local
from warploom.layout.modes import column_spatial as column_spatial
from warploom.layout.modes import compose as compose
from warploom.layout.modes import concat as concat
from warploom.layout.modes import divide as divide
from warploom.layout.modes import flatten as flatten
from warploom.layout.modes import left_divide as left_divide
from warploom.layout.modes import local as local
from warploom.layout.modes import permute as permute
from warploom.layout.modes import reduce as reduce
from warploom.layout.modes import register_layout as register_layout
from warploom.layout.modes import replicated as replicated
from warploom.layout.modes import reshape as reshape
from warploom.layout.modes import spatial as spatial
from warploom.layout.modes import squeeze as squeeze
from warploom.layout.modes import unsqueeze as unsqueeze
