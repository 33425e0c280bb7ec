"""The messages of penstock_v1.proto as classes, each by its name.

They are built from the compiled description beside this file, as code that protoc generates would
do it. Such code works only with some versions of the protobuf library; the description works with
all. `make proto` writes it, and the types in messages.pyi.
"""

import pkgutil
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FILE: Final = "penstock_v1.binpb"

# Not by importlib.resources, which would load the libraries of archives.
_content = pkgutil.get_data("penstock.frontdoor.grpc", _FILE)
assert _content is not None
_described = descriptor_pb2.FileDescriptorSet.FromString(_content)
# A pool of its own, since code that was generated from the same file may be in the process too.
POOL = descriptor_pool.DescriptorPool()
DESCRIPTOR = POOL.AddSerializedFile(_described.file[0].SerializeToString())

for _name, _type in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_type)
for _enum in DESCRIPTOR.enum_types_by_name.values():
    globals().update({_value.name: _value.number for _value in _enum.values})
