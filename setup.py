"""Builds the one compiled module; everything else is in pyproject.toml.

The module is optional: without a C compiler the build goes on and the pure-Python twin serves.
"""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildBatchModule(build_ext):
    """Turns the .pyx into C at build time, and only then."""

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        extensions = cythonize(self.distribution.ext_modules, quiet=True)
        for extension in extensions:
            extension.optional = True  # cythonize drops the flag
        self.distribution.ext_modules = extensions
        super().finalize_options()


setup(
    cmdclass={"build_ext": BuildBatchModule},
    ext_modules=[Extension("ottla.record._batch", ["src/ottla/record/_batch.pyx"])],
)
