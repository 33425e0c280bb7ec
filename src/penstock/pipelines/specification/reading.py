"""Reads a pipeline from its file, in whichever form it is written."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from penstock.pipelines.specification.model import Pipeline
from penstock.pipelines.specification.problems import Place, SpecificationRefused

_NOTHING: Mapping[str, str] = MappingProxyType({})


def read_pipeline(
    path: Path, given: Mapping[str, str] = _NOTHING, environment: Mapping[str, str] = os.environ
) -> Pipeline:
    """A pipeline with its parameters filled in; raises SpecificationRefused with all problems.

    `given` has the values of parameters from the command line, which win over the environment.
    """
    if not path.exists():
        raise SpecificationRefused.at(Place(str(path)), "There is no such file.")
    if path.is_dir():
        raise SpecificationRefused.at(Place(str(path)), "This is a folder, not a file.")
    if path.suffix in (".yaml", ".yml"):
        from penstock.pipelines.specification.yaml_reading import read_yaml

        return read_yaml(path, given, environment)
    if path.suffix == ".py":
        from penstock.pipelines.declaring.reading import read_python

        return read_python(path, given, environment)
    said = "A pipeline is described in a file that ends with .yaml, .yml or .py."
    raise SpecificationRefused.at(Place(str(path)), said)
