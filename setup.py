"""What pyproject.toml cannot say: warploom.pth goes beside the package, where Python reads it at its start,
so that WARPLOOM_AS_TRITON=1 serves `import triton` in programs that never import warploom."""

from setuptools import setup
from setuptools.command.build_py import build_py


class WithHook(build_py):
    """Copies the package, and the hook."""

    def run(self) -> None:
        super().run()
        self.copy_file("warploom.pth", self.build_lib)


setup(cmdclass={"build_py": WithHook})
