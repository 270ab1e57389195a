#!/bin/sh
# Makes tokens and the list of their hashes for the Secret xds-tokens:
#
#   sh deploy/kubernetes/tokens.sh FOLDER NAME=SCOPE...
#
# Each token is in FOLDER/NAME.token, the list in FOLDER/tokens. A token that is there is kept.
set -eu
umask 077
folder=${1:?FOLDER is missing}
: "${2:?NAME=SCOPE is missing}"
shift
mkdir -p "$folder"
separator='['
for given in "$@"; do
    name=${given%%=*}
    token=$folder/$name.token
    [ -s "$token" ] || head -c 32 /dev/urandom | base64 | tr -d '\n' > "$token"
    sha256=$(openssl dgst -sha256 -r "$token" | cut -c-64)
    printf '%s{"name": "%s", "sha256": "%s", "scopes": ["%s"]}' "$separator" "$name" "$sha256" "${given#*=}"
    separator=', '
done > "$folder/tokens"
printf ']\n' >> "$folder/tokens"
