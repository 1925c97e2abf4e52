"""headers.py: the public headers as data. One text: what the pages say is what the headers say.

A header is an introduction and sections. A section has a title, a text and entries in the order of
the file; an entry is a function, a macro, a type or a constant with the comment that belongs to it:
the one before it, the one behind it on its line, or else the one before the entries above it in
the same paragraph.
"""
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Entry:
    kind: str               # function, macro, type, constants
    name: str
    code: str               # as in the header, without comments in front
    text: str               # the comment
    header: str = ''
    section: str = ''
    own: bool = False       # the comment is this entry's alone
    fills: str = ''         # a macro: the struct whose members its arguments are


@dataclass
class Section:
    title: str
    text: str = ''
    entries: list = field(default_factory=list)


@dataclass
class Header:
    name: str               # ops.h
    text: str = ''
    sections: list = field(default_factory=list)


def plain(comment):
    """The text of a comment, without its stars."""
    body = re.sub(r'^/\*|\*/$', '', comment.strip())
    lines = [re.sub(r'^\s*\* ?', '', line) if n else line for n, line in enumerate(body.split('\n'))]
    return '\n'.join(line.rstrip() for line in lines).strip()


TOKEN = re.compile(r'/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|'
                   r'[{}();]|\n[ \t]*\n|\n|[^\s{}();"\'/#]+|[ \t]+|.', re.S | re.M)


def items(source):
    """Comments, directives, blank lines and declarations of a header, in order."""
    code, depth = '', 0
    for match in TOKEN.finditer(source):
        token = match.group()
        if depth == 0 and not code.strip():
            if token.startswith('/*'):
                yield 'comment', token
                continue
            if token.lstrip().startswith('#'):
                yield 'directive', token.strip()
                continue
            if token.isspace():
                if token.count('\n') > 1:
                    yield 'blank', ''
                elif token == '\n':
                    yield 'newline', ''
                continue
        code += token
        depth += token in ('{', '(')
        depth -= token in ('}', ')')
        if token == ';' and depth == 0:
            yield 'code', code.strip()
            code = ''
        if token == '{' and re.match(r'\s*extern\s+"C"', code):
            yield 'newline', ''
            code, depth = '', 0
        if token == '}' and depth < 0:      # of extern "C"
            code, depth = '', 0


NAMED = [('type', r'typedef\s+(?:struct|enum|union)\b.*\}\s*(\w+)\s*;$'),
         ('type', r'typedef\s+(?:struct|enum)\s+\w+\s+(\w+)\s*;$'),
         ('type', r'typedef\b[^;]*\(\*(\w+)\)\s*\([^;]*;$'),
         ('type', r'typedef\b[^;]*?\b\*?(\w+)\s*\([^;]*\)\s*;$'),
         ('type', r'typedef\b.*?\b(\w+)\s*(?:\[[^]]*\])?;$'),
         ('constants', r'enum\s*\{\s*(\w+).*\};$'),
         ('function', r'EG_API\b[^(;]*?\b(eg_\w+)\s*\(.*;$'),
         ('constants', r'EG_API\s+extern\b.*?\b(\w+)\s*(?:\[[^]]*\])?;$')]


def entry_of(code):
    for kind, pattern in NAMED:
        match = re.match(pattern, code, re.S)
        if match:
            return Entry(kind, match.group(1), code, '')
    return None


def heading(comment):
    """(title, text) of a comment that opens a section; else None."""
    match = re.match(r'/\*\s*--\s*(.*)', comment, re.S)
    if not match:
        return None
    text = plain('/*' + match.group(1))
    first, _, rest = text.partition('\n')
    title = re.sub(r'\s*-{3,}.*$', '', first)
    return title, re.sub(r'^-+$', '', rest, flags=re.M).strip()


def read_header(path):
    header = Header(path.name)
    section = Section('')
    header.sections.append(section)
    before, paragraph, last, hidden, behind = None, '', None, 0, False
    for kind, token in items(path.read_text()):
        if kind == 'comment':
            title = heading(token)
            if not header.text and not section.entries and not section.title and not title:
                header.text = re.sub(r'^\S+:\s*', '', plain(token))
            elif title:
                section = Section(*title)
                header.sections.append(section)
                before, paragraph, last = None, '', None
            elif behind and last:
                last.text = last.text + '\n' + plain(token) if last.text and last.own else plain(token)
                last.own = True
            elif 'clang-format' not in token:
                before = plain(token)
        elif kind in ('blank', 'newline'):
            behind = False
            if kind == 'blank':
                if before and not section.text and not section.entries:
                    section.text = before
                before, paragraph = None, ''
        elif kind == 'directive':
            match = re.match(r'#\s*define\s+(eg_\w+|EG_[A-Z0-9]+)(\([^)]*\))?', token)
            if match and (match.group(2) is not None or match.group(1).startswith('EG_')):
                if not match.group(1).endswith('_') and not match.group(1).startswith('EG_CXX'):
                    name = match.group(1)
                    code = '#define ' + name + (match.group(2) or ' ' + token.split(None, 2)[2]
                                                if len(token.split(None, 2)) > 2 else '')
                    if match.group(2) is None and not re.match(r'#\s*define\s+\w+\s+\S', token):
                        continue
                    text = before or (paragraph if last and last.kind == 'macro' else '')
                    last = Entry('macro', name, code, text, header.name, section.title)
                    last.own = bool(before)
                    filled = re.search(r'(?:EG_ARGS_\((\w+), |\.size = sizeof\((\w+)\),\s*\\?\s*)'
                                       r'__VA_ARGS__', token)
                    last.fills = (filled.group(1) or filled.group(2)) if filled else ''
                    section.entries.append(last)
                    paragraph = before or paragraph
                    before, behind = None, True
        else:
            found = entry_of(token)
            if found:
                last = found
                text = before or (paragraph if found.kind == 'function' else '')
                last.text, last.header, last.section = text, header.name, section.title
                last.own = bool(before)
                if before:
                    paragraph = before
                section.entries.append(last)
                before, behind = None, True
    header.sections = [s for s in header.sections if s.entries or s.title]
    return header


ORDER = ['core', 'notation', 'einsum', 'ops', 'attention', 'grad', 'check', 'nn', 'heads', 'mha',
         'model', 'decode', 'pretrained', 'train', 'ranks', 'io', 'dlpack']


def read_all(folder):
    """The headers of include/eingrad, those that are known in the order of a course."""
    paths = {p.stem: p for p in Path(folder).glob('*.h') if p.stem != 'cxx'}
    names = [n for n in ORDER if n in paths] + sorted(set(paths) - set(ORDER))
    return [read_header(paths[n]) for n in names]


def untold(headers):
    """["struct.member: header"] of numbers among the options of which no comment says what they
    are: behind the member, before it, or for all that follow ("the options of eg_gradcheck").
    Arguments of the function's macro are told with the function."""
    out = []
    for entry in (e for h in headers for s in h.sections for e in s.entries):
        if entry.kind != 'type' or not entry.name.endswith('_args'):
            continue
        alike = before = False
        for line in re.findall(r'/\*.*?\*/|[^;\n]*;', entry.code, re.S):
            if line.startswith('/*'):
                alike = alike or bool(re.search(r'\bas\b|\boptions of\b', line))
                before = True
                continue
            member = re.match(r'\s*(double|int|int64_t|uint64_t) ([^*(]*);', line)
            behind = entry.code[entry.code.index(line) + len(line):].lstrip(' ').startswith('/*')
            if member and not (before or behind or alike) and entry.name not in ARRAYS:
                out += [f'{entry.name}.{member.group(2)}: {entry.header}']
            before = False
    return out


# Structs whose numbers are the arguments of a macro.
ARRAYS = ('eg_from_args', 'eg_from_memory_args', 'eg_axes_args')


def home(group):
    """The entry whose place is that of the page: the function, since macros stand at the end."""
    return next((e for e in group if e.kind == 'function'), group[0])


def filling(group):
    """How the arguments of a page's macro give the options that it also has; '' if they do not."""
    options = [e.name for e in group if e.kind == 'type']
    names = [e.name for e in group if e.fills in options]
    if not names:
        return ''
    return (f'The arguments "..." of {names[0]} are the members of this struct after size, in their '
            'order or by name; a member that is left out is 0.')


def pages(headers):
    """Name -> the entries that one page has: eg_x with eg_x_with, eg_x_n and the structs of options
    that these take."""
    every = {}
    for header in headers:
        for section in header.sections:
            for entry in section.entries:
                every.setdefault(entry.name, entry)
    out = {}
    for name, entry in every.items():
        if entry.kind not in ('function', 'macro') or not name.startswith('eg_'):
            continue
        base = re.sub(r'_(with|n)$', '', name)
        base = base if base in every or name.endswith('_with') else name
        group = out.setdefault(base, [])
        if entry not in group:
            group.append(entry)
    for base, group in out.items():
        taken = [base + '_args'] + [n for e in group if e.name == base + '_with'
                                    for n in re.findall(r'\b(eg_\w+_args) \*', e.code)]
        group += [every[n] for n in dict.fromkeys(taken) if n in every]
        group.sort(key=lambda e: (e.kind == 'type', e.kind == 'function'))
    return out, every
