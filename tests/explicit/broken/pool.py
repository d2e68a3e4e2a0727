"""Two groups that take turns with the registers which a third one gives up (setmaxnreg); right with bug="" and
"takes turns in a loop", wrong in one place with every other."""

from warploom import Script
from warploom.language import float32, int32


class Pool(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 12  # 384 threads of 168 registers
        bug = self.bug
        rounds = n if bug == "takes turns in a loop" else 1
        taken = self.mbarrier.alloc(4)
        given = self.mbarrier.alloc(4)
        back = self.mbarrier.alloc(4)

        with self.thread_group(0, 128, name="first"):
            phase: int32 = 0
            for _ in range(rounds):
                if bug == "a lower budget by one path":
                    if n > 3:
                        self.setmaxnreg(200)
                        self.sync()
                    self.setmaxnreg(192)
                elif bug == "dec to more":
                    self.setmaxnreg(232, action="dec")
                else:
                    self.setmaxnreg(232)
                if bug == "gives up too late":
                    self.mbarrier.arrive(taken, by="warp")
                if bug == "keeps them until the other is done":
                    self.mbarrier.arrive(given, by="warp")
                    self.mbarrier.wait(back, phase)
                if bug not in ("keeps them", "two without a sync"):
                    self.sync()
                if bug != "keeps them":
                    self.setmaxnreg(168)
                if bug != "keeps them until the other is done":
                    self.mbarrier.arrive(given, by="warp")
                    self.mbarrier.wait(back, phase)
                self.sync()
                phase = phase ^ 1

        with self.thread_group(128, 128, name="second"):
            phase: int32 = 0
            for _ in range(rounds):
                if bug != "asks without waiting":
                    self.mbarrier.wait(given, phase)
                self.setmaxnreg(240 if bug == "asks for more than is there" else 232)
                self.sync()
                self.setmaxnreg(168)
                self.sync()
                self.mbarrier.arrive(back, by="warp")
                phase = phase ^ 1

        with self.thread_group(256, 128, name="third"):
            if bug == "gives up too late":
                self.mbarrier.wait(taken, 0)
            if bug != "gives nothing up":
                self.setmaxnreg(104)
