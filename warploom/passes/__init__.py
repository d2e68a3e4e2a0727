"""One pass a file, one function of the same name: (func, schedule, target) -> func."""

from warploom.ir.core import Level
from warploom.passes.task.insert_channels import insert_channels
from warploom.passes.task.join_dots import join_dots
from warploom.passes.task.order_numbers import order_numbers
from warploom.passes.task.partition_data import partition_data
from warploom.passes.task.partition_tasks import partition_tasks
from warploom.passes.warp.deal_iterations import deal_iterations
from warploom.passes.warp.defer_sums import defer_sums
from warploom.passes.warp.end_tiles_in_turns import end_tiles_in_turns
from warploom.passes.warp.fuse_tasks import fuse_tasks
from warploom.passes.warp.hand_over_stores import hand_over_stores
from warploom.passes.warp.load_ahead import load_ahead
from warploom.passes.warp.load_early import load_early
from warploom.passes.warp.merge_elects import merge_elects
from warploom.passes.warp.partition_code import partition_code
from warploom.passes.warp.pipeline_consumer import pipeline_consumer
from warploom.passes.warp.pipeline_wgmma import pipeline_wgmma
from warploom.passes.warp.share_copies import share_copies
from warploom.passes.warp.share_numbers import share_numbers

PASSES = (
    ("partition_tasks", partition_tasks, Level.TASK),
    ("partition_data", partition_data, Level.TASK),
    ("join_dots", join_dots, Level.TASK),
    ("order_numbers", order_numbers, Level.TASK),
    ("insert_channels", insert_channels, Level.CHANNEL),
    ("partition_code", partition_code, Level.WARP),
    ("pipeline_wgmma", pipeline_wgmma, Level.WARP),
    ("defer_sums", defer_sums, Level.WARP),
    ("pipeline_consumer", pipeline_consumer, Level.WARP),
    ("end_tiles_in_turns", end_tiles_in_turns, Level.WARP),
    ("deal_iterations", deal_iterations, Level.WARP),
    ("hand_over_stores", hand_over_stores, Level.WARP),
    ("share_copies", share_copies, Level.WARP),
    ("fuse_tasks", fuse_tasks, Level.WARP),
    ("share_numbers", share_numbers, Level.WARP),
    ("load_early", load_early, Level.WARP),
    ("load_ahead", load_ahead, Level.WARP),
    ("merge_elects", merge_elects, Level.WARP),
)
