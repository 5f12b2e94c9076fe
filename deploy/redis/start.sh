#!/bin/sh
# Starts Redis for one user, `tallystick`, whose password is in a file. The container's file system
# is read-only: the list of users goes to a tmpfs, and holds the password's hash alone.
#
#   start.sh PASSWORD_FILE USERS_FILE CONFIG [OPTION...]
#
# The rules are those that `tallystick doctor` names; {tallystick} is the namespace. Nobody can log in
# as `default`, but it must keep its rights: the append-only file is loaded as that user.
set -eu
password_file=$1 users=$2 config=$3
shift 3

hash=$(tr -d '\r\n' <"$password_file" | sha256sum | cut -d ' ' -f 1)
umask 077
cat >"$users" <<END
user default off resetpass ~* &* +@all
user tallystick on #$hash ~{tallystick}:* ~rq:* &rq:* +@all -@dangerous -script|flush -function +info +client|list +config|get +acl|whoami +acl|dryrun
END
exec redis-server "$config" --aclfile "$users" "$@"
