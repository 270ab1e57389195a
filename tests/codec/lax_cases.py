"""What Envoy 1.40 makes of JSON that is not as proto3 JSON says, measured with ``envoy --mode validate``.

Each case is the inside of a ``Cluster``. ``LAX``: Envoy takes it, it means the same as the second text. ``REFUSED``:
Envoy refuses its form. ``STRICT``: Envoy takes it and we do not, for the reason given.
"""

from __future__ import annotations

T = "type.googleapis.com/"


def _any(inside: str) -> str:
    return f'"metadata":{{"typed_filter_metadata":{{"a":{{{inside}}}}}}}'


def _typed(name: str, inside: str = "") -> str:
    return _any(f'"@type":"{T}{name}"{"," if inside else ""}{inside}')


def _route(inside: str) -> str:
    return _typed("envoy.config.route.v3.RouteConfiguration", f'"name":"r",{inside}')


def _octets(text: str) -> str:
    response = f'"direct_response":{{"status":200,"body":{{"inline_bytes":{text}}}}}'
    return _route(f'"virtual_hosts":[{{"name":"v","domains":["*"],"routes":[{{"match":{{"path":"/"}},{response}}}]}}]')


def _endpoints(text: str) -> str:
    return f'"load_assignment":{{"cluster_name":"c","endpoints":{text}}}'


def _flag(text: str) -> str:
    return f'"ignore_health_on_host_removal":{text}'


def _whole(text: str) -> str:
    return f'"per_connection_buffer_limit_bytes":{text}'


def _double(text: str) -> str:
    return f'"common_lb_config":{{"healthy_panic_threshold":{{"value":{text}}}}}'


def _family(text: str) -> str:
    return f'"dns_lookup_family":{text}'


def _timeout(text: str) -> str:
    return f'"connect_timeout":{text}'


_WKT = "google.protobuf."

LAX: dict[str, tuple[str, str]] = {
    "enum in lower case": (_family('"v4_only"'), _family('"V4_ONLY"')),
    "enum in mixed case": (_family('"V4_Only"'), _family('"V4_ONLY"')),
    "enum number in quotes": (_family('"1"'), _family('"V4_ONLY"')),
    "enum number with a sign": (_family('"+1"'), _family('"V4_ONLY"')),
    "enum number with a space": (_family('" 1"'), _family('"V4_ONLY"')),
    **{
        f"boolean {word}": (_flag(f'"{word}"'), _flag("true"))
        for word in ("true", "True", "TRUE", "t", "yes", "Y", "1")
    },
    **{f"boolean {word}": (_flag(f'"{word}"'), _flag("false")) for word in ("false", "F", "no", "n", "0")},
    "boolean in a wrapper": (
        f'"cluster_type":{{"name":"x","typed_config":{{"@type":"{T}google.protobuf.BoolValue","value":"true"}}}}',
        f'"cluster_type":{{"name":"x","typed_config":{{"@type":"{T}google.protobuf.BoolValue","value":true}}}}',
    ),
    "one value for a list": (_route('"internal_only_headers":"a"'), _route('"internal_only_headers":["a"]')),
    "one message for a list": (_endpoints('{"priority":1}'), _endpoints('[{"priority":1}]')),
    "lists in a list": (
        _route('"internal_only_headers":[["a",["b"]],"c",[]]'),
        _route('"internal_only_headers":["a","b","c"]'),
    ),
    "list of messages in a list": (_endpoints('[[{"priority":1}]]'), _endpoints('[{"priority":1}]')),
    "null among strings": (_route('"internal_only_headers":["a",null]'), _route('"internal_only_headers":["a",""]')),
    "null among messages": (_endpoints("[null]"), _endpoints("[{}]")),
    "null in a map": (
        '"metadata":{"filter_metadata":{"a":null}}',
        '"metadata":{"filter_metadata":{"a":{}}}',
    ),
    "null as a mapped Any": (_any("").replace("{}", "null"), _any("")),
    "both spellings of a scalar": ('"alt_stat_name":"a","altStatName":"b"', '"alt_stat_name":"b"'),
    "both spellings, the other way": ('"altStatName":"a","alt_stat_name":"b"', '"alt_stat_name":"b"'),
    "both spellings of a list": (
        _route('"internal_only_headers":["a"],"internalOnlyHeaders":["b"]'),
        _route('"internal_only_headers":["a","b"]'),
    ),
    "both spellings of a message": (
        '"load_assignment":{"cluster_name":"c"},"loadAssignment":{"policy":{}}',
        '"load_assignment":{"cluster_name":"c","policy":{}}',
    ),
    "both spellings of a map": (
        '"metadata":{"filter_metadata":{"a":{"x":1}},"filterMetadata":{"b":{}}}',
        '"metadata":{"filter_metadata":{"a":{"x":1},"b":{}}}',
    ),
    "both spellings of a map with the same key": (
        '"metadata":{"filter_metadata":{"a":{"x":1}},"filterMetadata":{"a":{"y":1}}}',
        '"metadata":{"filter_metadata":{"a":{"y":1}}}',
    ),
    "duration as an object": (_timeout('{"seconds":1,"nanos":5}'), _timeout('"1.000000005s"')),
    "duration as an object of strings": (_timeout('{"seconds":"3"}'), _timeout('"3s"')),
    "wrapper as an object": (_whole('{"value":5}'), _whole("5")),
    "wrapper as an empty object": (_whole("{}"), _whole("0")),
    "wrapper as an object of null": (_whole('{"value":null}'), _whole("0")),
    "integer in quotes with a fraction of nothing": (_whole('"1.0"'), _whole("1")),
    "integer in quotes with an exponent": (_whole('"1e3"'), _whole("1000")),
    "integer in quotes, tenths": (_whole('"10e-1"'), _whole("1")),
    "integer in quotes with a sign": (_whole('"+1"'), _whole("1")),
    "integer in quotes, hexadecimal": (_whole('"0x1F"'), _whole("31")),
    "integer in quotes, without its zero": (_whole('".0"'), _whole("0")),
    "integer in quotes, beyond a double": (
        _typed(f"{_WKT}UInt64Value", '"value":"+9007199254740993"'),
        _typed(f"{_WKT}UInt64Value", '"value":9007199254740993'),
    ),
    "number in quotes with spaces": (_double('" 1 "'), _double("1")),
    "number in quotes with a sign": (_double('"+1"'), _double("1")),
    "number in quotes, hexadecimal": (_double('"0x1.8p1"'), _double("3")),
    "infinity, short": (
        _typed(f"{_WKT}DoubleValue", '"value":"inf"'),
        _typed(f"{_WKT}DoubleValue", '"value":"Infinity"'),
    ),
    "infinity, signed": (
        _typed(f"{_WKT}DoubleValue", '"value":"-INFINITY"'),
        _typed(f"{_WKT}DoubleValue", '"value":"-Infinity"'),
    ),
    "number in quotes beyond a double": (
        _typed(f"{_WKT}DoubleValue", '"value":"1e400"'),
        _typed(f"{_WKT}DoubleValue", '"value":"Infinity"'),
    ),
    "struct without a value": (_typed(f"{_WKT}Struct"), _typed(f"{_WKT}Struct", '"value":{}')),
    "struct of null": (_typed(f"{_WKT}Struct", '"value":null'), _typed(f"{_WKT}Struct", '"value":{}')),
    "duration without a value": (_typed(f"{_WKT}Duration"), _typed(f"{_WKT}Duration", '"value":"0s"')),
    "any without a value": (_typed(f"{_WKT}Any"), _typed(f"{_WKT}Any", '"value":{}')),
    "string value as an object": (
        _typed(f"{_WKT}StringValue", '"value":{"value":"x"}'),
        _typed(f"{_WKT}StringValue", '"value":"x"'),
    ),
    "timestamp as an object": (
        _typed(f"{_WKT}Timestamp", '"value":{"seconds":5}'),
        _typed(f"{_WKT}Timestamp", '"value":"1970-01-01T00:00:05Z"'),
    ),
    "field mask as an object": (
        _typed(f"{_WKT}FieldMask", '"value":{"paths":["a"]}'),
        _typed(f"{_WKT}FieldMask", '"value":"a"'),
    ),
}

# As proto3 JSON says; Envoy takes it and nobody is warned.
PLAIN: dict[str, str] = {
    "enum by number": _family("1"),
    "enum by a whole float": _family("1.0"),
    "null for an enum": _family("null"),
    "null for a list": '"health_checks":null',
    "null for a message": '"load_assignment":null',
    "null in the other spelling": '"alt_stat_name":"a","altStatName":null',
    "null in a oneof": _octets('"aGk=","inline_string":null'),
    "integer as a whole float": _whole("1.0"),
    "integer with an exponent": _whole("1e3"),
    "integer in quotes": _whole('"1"'),
    "integer in quotes with a zero ahead": _whole('"010"'),
    "integer of negative zero": _whole("-0.0"),
    "number in quotes": _double('"1.5"'),
    "number in quotes with an exponent": _double('"1e1"'),
    "number in quotes without its zero": _double('".5"'),
    "base64": _octets('"aGk="'),
    "base64 without padding": _octets('"aGk"'),
    "base64, URL-safe": _octets('"-_8="'),
    "base64 of both alphabets": _octets('"-/8="'),
    "base64 of bits that are not used": _octets('"aGl="'),
    "any of empty": _typed(f"{_WKT}Empty"),
    "any of nothing": _any(""),
    "any of another host": _any('"@type":"example.org/google.protobuf.Empty"'),
    "any with its type last": _any(f'"value":{{"a":1}},"@type":"{T}google.protobuf.Struct"'),
    "any of any": _typed(f"{_WKT}Any", f'"value":{{"@type":"{T}google.protobuf.Empty"}}'),
    "value of null": _typed(f"{_WKT}Value", '"value":null'),
    "struct of all kinds": '"metadata":{"filter_metadata":{"a":{"x":null,"y":[null,1,"",true,{"z":[]}]}}}',
    "string with a zero byte": '"alt_stat_name":"a\\u0000b"',
    "digits in camelCase": '"outlierDetection":{"consecutive5xx":3}',
    "digits in snake_case": '"outlier_detection":{"consecutive_5xx":3}',
    "timestamp with an offset": _typed(f"{_WKT}Timestamp", '"value":"2020-01-01T00:00:00+02:00"'),
}

REFUSED: dict[str, str] = {
    "enum with a dash": _family('"v4-only"'),
    "enum in camelCase": _family('"v4Only"'),
    "unknown enum": _family('"V5_ONLY"'),
    "enum of nothing": _family('""'),
    "enum as a boolean": _family("false"),
    "enum as a fraction": _family("1.5"),
    "enum number in quotes with a fraction": _family('"1.0"'),
    "enum in a list": _family('["V4_ONLY"]'),
    "enum out of range": _family("2147483648"),
    "boolean as a number": _flag("1"),
    "boolean as zero": _flag("0"),
    "boolean of nothing": _flag('""'),
    "boolean with a space": _flag('" true"'),
    "list for a message": '"load_assignment":[{"cluster_name":"c"}]',
    "empty list for a message": '"load_assignment":[]',
    "list for a string": '"alt_stat_name":["x"]',
    "list for a map": '"typed_extension_protocol_options":[]',
    "list for a wrapper": _whole("[5]"),
    "list in a map": '"typed_extension_protocol_options":{"a":[]}',
    "string for a message": '"load_assignment":"x"',
    "number for a message": '"load_assignment":1',
    "object for a string": '"alt_stat_name":{}',
    "number for a string": '"alt_stat_name":5',
    "boolean for a string": '"alt_stat_name":true',
    "two of a oneof": '"type":"EDS","cluster_type":{"name":"x"}',
    "both spellings in a oneof": '"eds_cluster_config":{"eds_config":{"api_config_source":{},"apiConfigSource":{}}}',
    "duration as a number": _timeout("1"),
    "duration without a unit": _timeout('"1"'),
    "duration in milliseconds": _timeout('"100ms"'),
    "duration without its zero": _timeout('".5s"'),
    "duration with a bare point": _timeout('"1.s"'),
    "duration with a sign": _timeout('"+1s"'),
    "duration of ten digits": _timeout('"0.0000000001s"'),
    "duration with a space": _timeout('" 1s"'),
    "duration with an exponent": _timeout('"1e1s"'),
    "duration of ten thousand years and more": _timeout('"315576000001s"'),
    "duration as an object with another field": _timeout('{"nope":1}'),
    "wrapper as an object with another field": _whole('{"nope":1}'),
    "wrapper in a wrapper": _whole('{"value":{"value":1}}'),
    "fraction for an integer": _whole("1.5"),
    "fraction in quotes for an integer": _whole('"1.5"'),
    "tenth in quotes for an integer": _whole('"1e-1"'),
    "integer with a space": _whole('" 1"'),
    "integer with a space behind": _whole('"1 "'),
    "integer of nothing": _whole('""'),
    "integer with an underscore": _whole('"1_000"'),
    "integer that is not a number": _whole('"nan"'),
    "integer as a boolean": _whole("true"),
    "integer below range": _whole("-1"),
    "integer in quotes below range": _whole('"-1.0"'),
    "integer above range": _whole("4294967296"),
    "integer in quotes above range": _whole('"4294967296.0"'),
    "integer of four hundred digits": _whole("1" * 400),
    "integer beyond a double": _whole("1e400"),
    "long integer above range": '"ring_hash_lb_config":{"minimum_ring_size":"18446744073709551616"}',
    "long float above range": '"ring_hash_lb_config":{"minimum_ring_size":18446744073709551615.0}',
    "number as a boolean": _double("true"),
    "number of nothing": _double('""'),
    "number with a letter": _double('"1f"'),
    "number beyond a double": _double("1e400"),
    "number of 350 digits": _double("1" * 350),
    "base64 with too much padding": _octets('"aGk=="'),
    "base64 of padding": _octets('"="'),
    "base64 of stars": _octets('"***"'),
    "base64 of one character": _octets('"a"'),
    "base64 of five characters": _octets('"aGkxa"'),
    "base64 with a space": _octets('"aG k="'),
    "base64 with a line end": _octets('"aGk=\\n"'),
    "base64 with padding within": _octets('"aG=k"'),
    "base64 as a number": _octets("5"),
    "any of empty with a value": _typed(f"{_WKT}Empty", '"value":{}'),
    "any of empty with a value of null": _typed(f"{_WKT}Empty", '"value":null'),
    "any of a struct without value": _typed(f"{_WKT}Struct", '"a":1'),
    "any of a struct with more than a value": _typed(f"{_WKT}Struct", '"value":{},"a":1'),
    "any without a type": _any('"x":1'),
    "any of an unknown type": _typed("my.Type"),
    "any of a name alone": _any('"@type":"google.protobuf.Empty"'),
    "any of a type without a host": _any('"@type":"/google.protobuf.Empty"'),
    "any of an empty type": _any('"@type":""'),
    "any of a type that is null": _any('"@type":null'),
    "any as a list": _any("").replace("{}", "[]"),
    "list value of one value": _typed(f"{_WKT}ListValue", '"value":"x"'),
    "timestamp in lower case": _typed(f"{_WKT}Timestamp", '"value":"2020-01-01t00:00:00z"'),
    "timestamp without a zone": _typed(f"{_WKT}Timestamp", '"value":"2020-01-01T00:00:00"'),
    "date for a timestamp": _typed(f"{_WKT}Timestamp", '"value":"2020-01-01"'),
    "unknown field": '"nope":1',
    "unknown field of null": '"nope":null',
    "field in capitals": '"AltStatName":"x"',
    "field with dashes": '"alt-stat-name":"x"',
    "field by number": '"12":"x"',
    "field of nothing": '"":"x"',
    "digits in another camelCase": '"outlier_detection":{"consecutive5Xx":3}',
    "map as a list of entries": '"metadata":{"filter_metadata":[{"key":"a","value":{}}]}',
    "number for a struct": '"metadata":{"filter_metadata":{"a":1}}',
    "list for a struct": '"metadata":{"filter_metadata":{"a":[]}}',
    "number beyond a double in a struct": '"metadata":{"filter_metadata":{"a":{"x":1e400}}}',
    "same key twice in a struct": '"metadata":{"filter_metadata":{"a":{"x":1,"x":2}}}',
    "same key twice in a map": '"metadata":{"filter_metadata":{"a":{"x":1},"a":{}}}',
    "same key twice in a oneof": '"eds_cluster_config":{"eds_config":{"ads":{},"ads":{}}}',
    "half a surrogate pair": '"alt_stat_name":"\\ud800"',
    "not a number": _double("NaN"),
    "comment": '"alt_stat_name":"x"/* c */',
}

# Envoy's JSON takes these. Two values of one key are a slip, whatever they stand for; the rest is not JSON, and YAML
# can say it all.
STRICT: dict[str, str] = {
    "same key twice": '"alt_stat_name":"a","alt_stat_name":"b"',
    "same message twice": '"load_assignment":{"cluster_name":"c"},"load_assignment":{"policy":{}}',
    "comma at the end": '"alt_stat_name":"x",',
    "single quotes": "'alt_stat_name':'x'",
    "key without quotes": 'alt_stat_name:"x"',
}
