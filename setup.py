"""Builds the compiled modules; everything else is in pyproject.toml.

They are optional: without a C compiler the build goes on and the pure-Python twins serve.
"""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildModules(build_ext):
    """Turns each .pyx into C at build time, and only then."""

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        extensions = cythonize(self.distribution.ext_modules, quiet=True)
        for extension in extensions:
            extension.optional = True  # cythonize drops the flag
        self.distribution.ext_modules = extensions
        super().finalize_options()


setup(
    cmdclass={"build_ext": BuildModules},
    ext_modules=[
        Extension(f"ottla.{name.replace('/', '.')}", [f"src/ottla/{name}.pyx"])
        for name in ("api/_messages", "protocol/_hot", "record/_batch", "record/_keys")
    ],
)
