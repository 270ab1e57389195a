"""What one set of types has beyond another is laid over it."""

from __future__ import annotations

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tools.proto.describe import TypeProto
from tools.proto.overlay import apply_envoy
from tools.proto.partition import partition

MINE = """
  name: "M"
  field { name: "a" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "b" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "o" number: 3 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
  oneof_decl { name: "kind" }
  oneof_decl { name: "_o" }
"""


def _laid(mine: TypeProto, theirs: TypeProto) -> tuple[dict[str, TypeProto], list[str]]:
    file = FileDescriptorProto(name="t.proto", package="p", syntax="proto3")
    if isinstance(theirs, DescriptorProto):
        file.message_type.append(theirs)
    else:
        file.enum_type.append(theirs)
    types = {"p.M": mine}
    return types, apply_envoy(types, [file])


def _message(text: str) -> DescriptorProto:
    return text_format.Parse(text, DescriptorProto())


def _enum(**values: int) -> EnumDescriptorProto:
    enum = EnumDescriptorProto(name="M")
    for name, number in values.items():
        enum.value.add(name=name, number=number)
    return enum


def test_a_field_joins_its_oneof_before_the_synthetic_ones() -> None:
    theirs = _message("""
      name: "M"
      field { name: "c" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 1 options { deprecated: true } }
      field { name: "d" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 json_name: "x" }
      field { name: "e" number: 6 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 2 proto3_optional: true }
      oneof_decl { name: "other" }
      oneof_decl { name: "kind" }
      oneof_decl { name: "_e" }
    """)
    types, contradictions = _laid(_message(MINE), theirs)
    assert contradictions == []
    pool = DescriptorPool()
    for file in partition(types):
        pool.AddSerializedFile(file.SerializeToString())
    built = pool.FindMessageTypeByName("p.M")
    assert [field.name for field in built.fields] == ["a", "b", "o", "c", "d", "e"]
    members = {name: [field.name for field in one.fields] for name, one in built.oneofs_by_name.items()}
    assert members == {"kind": ["b", "c"], "other": ["d"], "_o": ["o"], "_e": ["e"]}
    assert built.fields_by_name["d"].json_name == "d"
    assert not built.fields_by_name["c"].GetOptions().deprecated


def test_missing_messages_are_added_with_nested_ones() -> None:
    theirs = _message("""
      name: "M"
      field { name: "m" number: 4 type: TYPE_MESSAGE type_name: ".p.M.MEntry" label: LABEL_REPEATED }
      nested_type {
        name: "MEntry"
        field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "value" number: 2 type: TYPE_ENUM type_name: ".p.M.E" label: LABEL_OPTIONAL }
        options { map_entry: true }
      }
      enum_type { name: "E" value { name: "ZERO" number: 0 } }
    """)
    types, contradictions = _laid(_message(MINE), theirs)
    assert contradictions == []
    mine = types["p.M"]
    assert isinstance(mine, DescriptorProto)
    assert mine.nested_type[0] == theirs.nested_type[0]
    assert mine.enum_type[0] == theirs.enum_type[0]


def test_contradictions_take_the_definition_of_envoy() -> None:
    theirs = _message('name: "M" field { name: "n" number: 1 type: TYPE_BOOL label: LABEL_REPEATED }')
    types, contradictions = _laid(_message(MINE), theirs)
    assert contradictions == ["p.M: Envoy has repeated bool n = 1, envoy-data-plane string a = 1"]
    mine = types["p.M"]
    assert isinstance(mine, DescriptorProto)
    assert [field.name for field in mine.field] == ["b", "o", "n"]


def test_a_name_at_another_number_is_a_contradiction() -> None:
    theirs = _message('name: "M" field { name: "a" number: 9 type: TYPE_STRING label: LABEL_OPTIONAL }')
    _, contradictions = _laid(_message(MINE), theirs)
    assert contradictions == ["p.M: Envoy has string a = 9, envoy-data-plane string a = 1"]


def test_enum_values_are_added() -> None:
    types, contradictions = _laid(_enum(A=0, OLD=7), _enum(A=0, B=1))
    assert contradictions == []
    assert types["p.M"] == _enum(A=0, OLD=7, B=1)


def test_a_renamed_enum_value_is_a_contradiction() -> None:
    types, contradictions = _laid(_enum(A=0, B=1), _enum(A=0, C=1))
    assert contradictions == ["p.M: Envoy has no B = 1 that envoy-data-plane has"]
    assert types["p.M"] == _enum(A=0, C=1)


def test_a_message_in_place_of_an_enum_is_a_contradiction() -> None:
    types, contradictions = _laid(_enum(A=0), _message(MINE))
    assert contradictions == ["p.M: is a message in Envoy, an enum in envoy-data-plane"]
    assert isinstance(types["p.M"], DescriptorProto)
