# fish's completion of the program eingrad: its commands, the options of each, files.
complete -c eingrad -n __fish_use_subcommand -f -a "(eingrad --help 2>/dev/null |
    string replace -rf '^  ([a-z]+)  +(.*)' '\$1\\t\$2')"
complete -c eingrad -n 'not __fish_use_subcommand' -a "(eingrad (commandline -opc)[2] --help 2>/dev/null |
    string replace -rf '^  (--[a-z-]+)(?:.*?  +|.*\$)(.*)' '\$1\\t\$2')"
