"""`warploom bench`: the library's kernels beside other implementations of the same, on the present GPU.

    cases    the workloads, as data
    data     their arrays and references
    measure  checks, tunes and times; defines *burst* and *sustained*
    peers/   a module an implementation
    harness  measures cases beside peers, report as JSON
    watch    a harness in a process of its own, begun again without what took it down
    chart    a report as a picture

Whoever times (all but cases, data on paper, chart) needs torch and a Hopper GPU.
"""
