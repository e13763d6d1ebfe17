"""The data types that filters have on servers, as the library knows them."""

from typing import NamedTuple

from oxbloom._oxbloom import data_types


class DataType(NamedTuple):
    name: str
    commands: str  # their prefix: "BF." or "CF."
    layout: str  # "native", "classic" (RedisBloom's) or "valkey"
    is_foreign: bool  # another module's, unless oxbloom stands in for it


DATA_TYPES = [DataType(*row) for row in data_types()]
