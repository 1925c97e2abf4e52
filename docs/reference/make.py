#!/usr/bin/env python3
"""make.py: man pages and an HTML reference from the public headers, the program's --help and docs/.

    make.py man  OUT --top DIR --program build/eingrad      man1, man3, man7
    make.py html OUT --top DIR --program build/eingrad      index.html, a page a header, the chapters

Every page is made of the headers' own comments (headers.py), so there is no second text. Doxygen
was tried for this: it drops the columns of formulas, wants its own marks in comments, and does not
know macros with named arguments. HTML chapters need python3-markdown; man pages Python alone.
"""
import argparse
import html as markup
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headers as H

# -- text: paragraphs, lists and columns --------------------------------------------------------


def blocks(text):
    """[(kind, lines)]: p a paragraph, list its items, pre columns that stay as they are."""
    out = []
    for part in re.split(r'\n\s*\n', text.strip('\n')):
        lines = part.split('\n')
        run, kind = [], None
        for line in lines:
            item = re.match(r'\s*- ', line)
            columns = re.search(r'\S {3,}\S', line) or (kind == 'pre' and re.match(r' {3,}\S', line))
            now = 'list' if item or (kind == 'list' and line.startswith('  ')) else \
                'pre' if columns else 'p'
            if now != kind and run:
                out.append((kind, run))
                run = []
            kind = now
            if now == 'list' and not item:
                run[-1] += ' ' + line.strip()
            else:
                run.append(re.sub(r'^\s*- ', '', line) if now == 'list' else line)
        if run:
            out.append((kind, run))
    return out


def first_sentence(text):
    """The summary of a comment: its first sentence, or its first line of columns; not the call that
    some begin with, in a paragraph of its own."""
    text = text.strip()
    if not text:
        return ''
    head, _, rest = text.partition('\n\n')
    if rest and re.fullmatch(r'[eE][gG]_\w+\(.*\)[;.]?', head, re.S):
        text = rest.strip()
    line = text.split('\n')[0]
    if re.search(r'\S {3,}\S', line):
        return re.sub(r' {2,}', ', ', line)
    joined = re.sub(r'\s+', ' ', text)
    match = re.match(r'(.*?[.;])(\s|$)', joined)
    return (match.group(1) if match else joined).rstrip('.:;')


def line_of(group, section):
    """One line about a function: of its own comment, of that of its options, or of its section; what
    is refused is no summary, and a word or two need the section's title before them."""
    own = [e.text for e in group if e.kind == 'function' and e.own]
    own += [e.text for e in group if e.kind == 'type'] + [e.text for e in group if e.own]
    title = first_sentence(section.title)
    for text in own + [e.text for e in group]:
        line = first_sentence(text)
        if line and not re.match(r'[Rr]efuse|NULL\b|[−0-9]+ of NULL|\.', line):
            return line if len(line) > 15 or '=' in line or not title else f'{title}: {line}'
    return title or group[0].name


# -- examples: what is compiled anyhow ----------------------------------------------------------


def sources(top):
    """[(where, text)] of all C that make check compiles: blocks of docs, examples, tests,
    then the library, which is its own user."""
    out = []
    for page in [top / 'README.md'] + sorted((top / 'docs').glob('*.md')):
        for block in re.findall(r'^```c\n(.*?)^```', page.read_text(), re.S | re.M):
            out.append((page.relative_to(top).as_posix(), block))
    for folder in ('examples', 'tests', 'tests/headers', 'tools'):
        for path in sorted((top / folder).glob('*.c')):
            out.append((path.relative_to(top).as_posix(), path.read_text()))
    for path in sorted((top / 'lib').rglob('*.c')):
        out.append((path.relative_to(top).as_posix(), path.read_text()))
    return out


def statement(text, at):
    """The statement around a place of a C source: whole lines, at most eight."""
    lines, row = text.split('\n'), text.count('\n', 0, at)
    first = last = row
    while first > 0 and row - first < 4 and not re.search(r'[;{}/:]\s*$|^\s*$|\*/', lines[first - 1]):
        first -= 1
    depth = lambda: sum(l.count('(') - l.count(')') for l in lines[first:last + 1])
    while last + 1 < len(lines) and last - row < 6 and \
            (depth() > 0 or not re.search(r'[;{}]\s*(/\*.*)?$', lines[last])):
        last += 1
    chosen = lines[first:last + 1]
    indent = min((len(l) - len(l.lstrip()) for l in chosen if l.strip()), default=0)
    return [l[indent:] for l in chosen]


def examples(top):
    """name -> (where, lines): the shortest use of each function, of the first kind of source that
    has one; at worst a use as a value, .jvp = eg_jvp_linear."""
    best = {}
    for where, text in sources(top):
        kind = where.split('/')[0].replace('README.md', 'docs')
        for match in re.finditer(r'(?:= |\b)(eg_\w+)(?:\s*\(|(?=,$))', text, re.M):
            name = match.group(1)
            if name in best and best[name][0] != kind:
                continue
            line = text[text.rfind('\n', 0, match.start()) + 1:match.start()]
            if line.count('"') % 2 or re.search(r'/\*|^#|^\s\*|^\s*//', line):
                continue
            if kind == 'lib' and re.match(r'\S', text[text.rfind('\n', 0, match.start()) + 1:]):
                continue            # its definition
            lines = statement(text, match.start())
            if name not in best or len(lines) < len(best[name][2]):
                best[name] = kind, where, lines
    return {name: found[1:] for name, found in best.items()}


# -- the program --------------------------------------------------------------------------------


def commands(program):
    """[(name, summary, help text)], first the program itself."""
    def said(*words):
        return subprocess.run([program, *words, '--help'], capture_output=True, text=True,
                              check=True).stdout
    text = re.sub(r'\S*/eingrad\b', 'eingrad', said())
    out = [('', re.match(r'eingrad \S+: (.*)', text).group(1), text)]
    for name, summary in re.findall(r'^  ([a-z]+)  +(\S.*)$', text, re.M):
        out.append((name, summary, re.sub(r'\S*/eingrad\b', 'eingrad', said(name))))
    return out


# -- man ----------------------------------------------------------------------------------------


def declared(code):
    """A declaration without what only compilers read."""
    return re.sub(r'\s*EG_FORMAT_\([^)]*\)', '', code.replace('EG_API ', '').replace('#define ', ''))


def roff(text):
    text = text.replace('\\', '\\e').replace('-', '\\-') or '\\&'
    return re.sub(r'^([.\'])', r'\\&\1', text, flags=re.M)


def man_text(text):
    out = []
    for kind, lines in blocks(text) if text.strip() else []:
        if kind == 'p':
            out += ['.PP', roff(' '.join(line.strip() for line in lines))]
        elif kind == 'pre':
            out += ['.PP', '.nf', *map(roff, lines), '.fi']
        else:
            for item in lines:
                out += ['.IP \\(bu 2', roff(item)]
    return out


def man_code(code):
    return ['.PP', '.nf', *map(roff, code.split('\n')), '.fi']


def man_head(name, section, summary, version):
    return [f'.TH {name.upper()} {section} "" "eingrad {version}" "eingrad"', '.SH NAME',
            f'{roff(name)} \\- {roff(summary)}']


def man_function(name, group, section, used, names, version):
    """The page of a function, of its macro and of its options."""
    texts = [e.text for e in group if e.text and e.kind != 'type']
    options = [e for e in group if e.kind == 'type']
    out = man_head(name, 3, line_of(group, section), version)
    out += ['.SH SYNOPSIS', f'.B #include <eingrad/{group[0].header}>', '.PP', '.nf']
    for e in group:
        if e.kind != 'type':
            out.append(roff(declared(e.code)))
    out.append('.fi')
    out.append('.SH DESCRIPTION')
    for text in dict.fromkeys(texts):
        out += man_text(text)
    if section.text or not texts:
        out += ['.SS ' + roff(section.title[:1].upper() + section.title[1:])]
        out += man_text(section.text)
    for e in options:
        if e is options[0]:
            out += ['.SH OPTIONS'] + (man_text(H.filling(group)) if H.filling(group) else [])
        out += (man_text(e.text) if e.text not in texts else []) + man_code(e.code)
    found = next((used[e.name] for e in group if e.name in used), None)
    if found:
        out += ['.SH EXAMPLE', f'From {roff(found[0])}:', '.PP', '.nf', '.RS 4',
                *map(roff, found[1]), '.RE', '.fi']
    near = [n for n in names if n != name][:12]
    out += ['.SH SEE ALSO'] + [f'.BR {roff(n)} (3),' for n in near]
    return out + [f'.BR eingrad\\-{group[0].header[:-2]} (7)']


def man_type(e, section, header, version):
    """The page of a type that is no function's options."""
    out = man_head(e.name, 3, first_sentence(e.text or section.title) or e.name, version)
    out += ['.SH SYNOPSIS', f'.B #include <eingrad/{e.header}>', *man_code(e.code),
            '.SH DESCRIPTION'] + man_text(e.text)
    if section.text or not e.text:
        out += ['.SS ' + roff(section.title[:1].upper() + section.title[1:])]
        out += man_text(section.text)
    taking = [f.name for s in header.sections for f in s.entries
              if f.kind == 'function' and re.search(rf'\b{e.name}\b', f.code)][:12]
    out += ['.SH SEE ALSO'] + [f'.BR {roff(n)} (3),' for n in taking]
    return out + [f'.BR eingrad\\-{e.header[:-2]} (7)']


def man_header(header, version):
    out = man_head('eingrad-' + header.name[:-2], 7, first_sentence(header.text), version)
    out += ['.SH SYNOPSIS', f'.B #include <eingrad/{header.name}>', '.SH DESCRIPTION']
    out += man_text(header.text)
    for section in header.sections:
        if section.title:
            out += ['.SH ' + roff(section.title.upper() if len(section.title) < 40 else
                                  section.title)]
        out += man_text(section.text)
        for e in section.entries:
            if e.kind in ('type', 'constants') and not e.name.endswith('_args'):
                out += man_text(e.text) + man_code(e.code)
            elif e.kind == 'macro' and not e.name.startswith('eg_'):
                if e.name not in ('EG_API', 'EG_FORMAT_'):
                    out += ['.TP', '.B ' + roff(e.code.replace('#define ', '')),
                            roff(re.sub(r'\s+', ' ', e.text)) or '.br']
            elif e.kind in ('function', 'macro'):
                out += ['.TP', f'.BR {roff(e.name)} (3)', roff(first_sentence(e.text)) or '.br']
    return out


def man_command(name, summary, text, all_names, version):
    page = 'eingrad-' + name if name else 'eingrad'
    out = man_head(page, 1, summary, version)
    usage, _, rest = text.partition('\n\n') if name else text.partition('\n\n')[2].partition('\n\n')
    examples = re.findall(rf'^  ({name} .*|{name})$', rest, re.M) if name else ['train reverse']
    usage_lines = [l for l in usage.split('\n') if l.startswith('usage:') or l.startswith('  ')]
    out += ['.SH SYNOPSIS', '.nf', *(roff(re.sub('^usage: ', '', l)) for l in usage_lines), '.fi',
            '.SH DESCRIPTION']
    out += [roff(l[:1].upper() + l[1:] + '.') for l in usage.split('\n') if l not in usage_lines]
    out += ['.PP']
    for part in rest.strip('\n').split('\n\n'):
        for line in part.split('\n'):
            if line.strip() in examples:
                continue
            option = re.match(r'  (\S.*?)(?:  +(\S.*))?$', line)
            if option and option.group(2):
                out += ['.TP', '.B ' + roff(option.group(1)), roff(option.group(2))]
            elif re.match(r'\w[\w ]*:$', line):
                out += ['.SH ' + line[:-1].upper()]
            elif line.startswith(' '):
                out += ['.PP', '.nf', roff(line), '.fi']
            else:
                out += [roff(line)]
        out += ['.PP']
    if examples:
        out += ['.SH EXAMPLE', '.nf', *(roff('eingrad ' + e) for e in examples), '.fi']
    out += ['.SH SEE ALSO'] + [f'.BR eingrad{roff("-" + n) if n else ""} (1)' for n in all_names
                               if n != name] + ['.BR eingrad\\-core (7)']
    return out


def write_man(out, top, program):
    all_headers = H.read_all(top / 'include' / 'eingrad')
    groups, _ = H.pages(all_headers)
    version = version_of(top)
    used, types = examples(top), set()
    for n in (1, 3, 7):
        (out / f'man{n}').mkdir(parents=True, exist_ok=True)

    def put(name, n, lines):
        (out / f'man{n}' / f'{name}.{n}').write_text('\n'.join(lines) + '\n')
    for header in all_headers:
        put('eingrad-' + header.name[:-2], 7, man_header(header, version))
        for section in header.sections:
            names = [b for b, g in groups.items()
                     if any(e in section.entries for e in g if e.kind != 'type')]
            for name in names:
                if H.home(groups[name]) not in section.entries:
                    continue
                put(name, 3, man_function(name, groups[name], section, used, names, version))
                for e in groups[name]:
                    if e.name != name:
                        put(e.name, 3, [f'.so man3/{name}.3'])
        for section in header.sections:
            for e in section.entries:
                if e.kind == 'type' and not any(e in g for g in groups.values()):
                    put(e.name, 3, man_type(e, section, header, version))
                    types.add(e.name)
    told = commands(program)
    for name, summary, text in told:
        put('eingrad-' + name if name else 'eingrad', 1,
            man_command(name, summary, text, [c[0] for c in told], version))
    return absent_pages(out, types)


def absent_pages(out, types):
    """["page: name"] of pages that another one names and that are not there, or lack a section."""
    complaints = []
    for path in sorted(out.glob('man*/*')):
        text = path.read_text().replace('\\-', '-')
        if text.startswith('.so '):
            continue
        sections = ('NAME', 'SYNOPSIS', 'DESCRIPTION') + (
            () if path.suffix == '.7' else
            ('SEE ALSO',) if path.stem in types else ('EXAMPLE', 'SEE ALSO'))
        complaints += [f'{path.name}: no {s}' for s in sections if f'\n.SH {s}\n' not in text]
        for name, n in re.findall(r'^\.BR (\S+) \((\d)\)', text, re.M):
            if not (out / f'man{n}' / f'{name}.{n}').exists():
                complaints.append(f'{path.name} names {name}({n}), which is not there')
    return complaints


def version_of(top):
    return re.search(r'AC_INIT\(\[eingrad\], \[(.*?)\]', (top / 'configure.ac').read_text()).group(1)


# -- HTML ---------------------------------------------------------------------------------------

STYLE = """:root{color-scheme:light dark;--line:#8884;--soft:#8882;--link:#0b62c4}
@media(prefers-color-scheme:dark){:root{--link:#7db8ff}}
*{box-sizing:border-box}body{font:16px/1.5 system-ui,sans-serif;margin:0}
header{border-bottom:1px solid var(--line);padding:.5rem 1rem;display:flex;gap:1rem;flex-wrap:wrap;
align-items:center}header a{font-weight:600}main,footer{max-width:60rem;margin:auto;padding:1rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
pre{background:var(--soft);padding:.7rem;overflow-x:auto;border-radius:4px;font-size:.875rem;
line-height:1.4}code{font-family:ui-monospace,monospace;font-size:.92em}table{border-collapse:collapse;
display:block;overflow-x:auto}td,th{border:1px solid var(--line);padding:.2rem .5rem;text-align:left;
vertical-align:top}section{border-top:1px solid var(--line);margin-top:1.5rem}article{margin:1.5rem 0}
h1,h3{overflow-wrap:anywhere}article h3{margin:.2rem 0;font-family:ui-monospace,monospace}.from{font-size:.85rem;opacity:.8}
input{font:inherit;padding:.2rem .5rem;min-width:14rem}#found{position:absolute;background:Canvas;
border:1px solid var(--line);max-height:70vh;overflow:auto;margin:0;padding:.3rem;list-style:none;
z-index:1}#found:empty{display:none}#found small{opacity:.7}nav ul{columns:15rem;padding-left:1.2rem}
img{max-width:100%}.ix{font-weight:600}"""
SEARCH = """const box=document.getElementById('search'),found=document.getElementById('found');
box.hidden=false;box.oninput=()=>{const words=box.value.toLowerCase().split(/\\s+/).filter(Boolean);
found.textContent='';if(!words.length)return;
const rank=e=>e[0].toLowerCase()===words[0]||e[0]==='eg_'+words[0]?0:
e[0].toLowerCase().includes(words[0])?1:2;
NAMES.filter(e=>words.every(w=>(e[0]+' '+e[1]).toLowerCase().includes(w)))
.sort((a,b)=>rank(a)-rank(b)).slice(0,20).forEach(e=>{const item=document.createElement('li'),
link=document.createElement('a'),note=document.createElement('small');link.href=e[2];
link.textContent=e[0];note.textContent=' '+e[1];item.append(link,note);found.append(item)})};"""


def is_spec(text):
    """True if a string is index notation: "ibhd,jbhd->ijbh", "b [l] d", "(h d) m -> m h d"."""
    return bool(re.fullmatch(r'[a-zA-Z.,\[\]()=0-9 >&;-]{2,60}', text) and re.search(
        r'->|\[[a-z]|\b[a-z]( [a-z])+\b|^[a-z]+(,[a-z]+)+$', text) and
        not re.search(r'[a-z]{6,}', text))


def notation(spec):
    """A spec whose letters have a colour each, so that one sees where an index goes."""
    def letter(match):
        hue = ord(match.group()) * 137 % 360
        return f'<span class="ix" style="color:hsl({hue} 70% 45%)">{match.group()}</span>'
    return re.sub(r'(?<!&)[a-zA-Z](?![a-z]*;)', letter, markup.escape(spec, False))


def html_code(code, names):
    """C with links to the names of the library, and its specs in colours."""
    def part(match):
        token = match.group()
        if token.startswith('"'):
            body = token[1:-1]
            return '"' + (notation(body) if is_spec(body) else markup.escape(body, False)) + '"'
        base = names.get(token)
        return f'<a href="{base}">{token}</a>' if base else markup.escape(token, False)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|\b[eE][gG]_\w+|[^"eE]+|.', part, code, flags=re.S)


def html_text(text, names):
    out = []
    for kind, lines in blocks(text):
        if kind == 'pre':
            out.append('<pre>' + html_code('\n'.join(lines), names) + '</pre>')
        elif kind == 'list':
            out.append('<ul>' + ''.join(f'<li>{html_code(l, names)}</li>' for l in lines) + '</ul>')
        else:
            out.append('<p>' + html_code(' '.join(l.strip() for l in lines), names) + '</p>')
    return '\n'.join(out)


def page(title, body, version, chapters):
    links = ' '.join(f'<a href="{c}.html">{c}</a>' for c in chapters)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{markup.escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="style.css"></head><body>
<header><a href="index.html">eingrad {version}</a>
<div><input id="search" type="search" placeholder="a name or a word" aria-label="search" hidden>
<ul id="found"></ul></div></header>
<main>{body}</main><footer><small>{links}</small></footer>
<script src="names.js"></script><script src="search.js"></script></body></html>
"""


def html_header(header, groups, names, used):
    """The page of a header: its text, sections, functions and types in the header's order."""
    out = [f'<h1>&lt;eingrad/{header.name}&gt;</h1>', html_text(header.text, names)]
    done = set()
    for section in header.sections:
        body = []
        for e in section.entries:
            base = next((b for b, g in groups.items() if e in g), e.name)
            group = groups.get(base, [e])
            if base in done or H.home(group) not in section.entries and e.kind != 'type':
                continue
            if e.kind == 'type' and base != e.name and H.home(group) in section.entries:
                continue        # options stand with their function
            done.add(base)
            body.append(f'<article id="{base}"><h3>{base}</h3>')
            body += [f'<a id="{x.name}"></a>' for x in group if x.name != base]
            code = [declared(x.code) for x in group
                    if x.kind != 'type' or x is group[0]]
            body.append('<pre>' + html_code('\n'.join(code), names) + '</pre>')
            body += [html_text(t, names) for t in dict.fromkeys(
                x.text for x in group if x.text and (x.kind != 'type' or x is group[0]))]
            for x in group[1:]:
                if x.kind == 'type':
                    how = H.filling([*(y for y in group if y.kind == 'macro'), x])
                    body.append('<details><summary>options</summary>' +
                                html_text('\n\n'.join(t for t in (how, x.text) if t), names) +
                                '<pre>' + html_code(x.code, names) + '</pre></details>')
            found = next((used[x.name] for x in group if x.name in used), None)
            if found:
                body.append(f'<p class="from">from {found[0]}</p><pre>' +
                            html_code('\n'.join(found[1]), names) + '</pre>')
            body.append('</article>')
        if body or section.text:
            title = markup.escape(section.title, False)
            out.append('<section>' + (f'<h2>{title[:1].upper() + title[1:]}</h2>' if title else ''))
            out += [html_text(section.text, names), *body, '</section>']
    return '\n'.join(out)


def write_html(out, top, program):
    try:
        import markdown
    except ImportError:
        sys.exit('make.py: the chapters need python3-markdown: apt-get install python3-markdown')
    out.mkdir(parents=True, exist_ok=True)
    all_headers, version, used = H.read_all(top / 'include' / 'eingrad'), version_of(top), examples(top)
    groups, every = H.pages(all_headers)
    names = {n: f'{e.header[:-2]}-h.html#{n}' for n, e in every.items()}
    chapters = sorted(p.stem for p in (top / 'docs').glob('*.md'))
    lines = {e.name: line_of(g, s) for g in groups.values() for h in all_headers
             for s in h.sections if H.home(g) in s.entries for e in g}
    index = [[n, lines.get(n, first_sentence(e.text))[:90], names[n]] for n, e in every.items()]

    def put(name, title, body):
        (out / f'{name}.html').write_text(page(title, body, version, chapters))
    for header in all_headers:
        put(header.name[:-2] + '-h', f'eingrad/{header.name}',
            html_header(header, groups, names, used))
    converter = markdown.Markdown(extensions=['tables', 'fenced_code', 'toc', 'sane_lists'])
    for path in [top / 'README.md'] + [top / 'docs' / f'{c}.md' for c in chapters]:
        text = re.sub(r'<!--.*?-->', '', path.read_text(), flags=re.S)
        body = converter.reset().convert(text)
        body = re.sub(r'(<pre><code[^>]*>)(.*?)(</code></pre>)', lambda m: m.group(1) + html_code(
            markup.unescape(m.group(2)), names) + m.group(3), body, flags=re.S)
        body = re.sub(r'<code>(eg_\w+)</code>', lambda m: f'<code><a href="{names[m.group(1)]}">' +
                      m.group(1) + '</a></code>' if m.group(1) in names else m.group(), body)
        body = re.sub(r'href="(?:\.\./)?(?:docs/)?([\w-]+)\.md', r'href="\1.html', body)
        body = re.sub(r'href="\.\./README.html', 'href="README.html', body)
        put(path.stem, path.stem, body)
        index.append([path.stem, 'chapter', path.stem + '.html'])
    for name, summary, text in commands(program):
        title = ('eingrad ' + name).strip()
        put(title.replace(' ', '-') + '-command', title, f'<h1>{title}</h1><pre>' +
            markup.escape(text, False) + '</pre>')
        index.append([title, summary, title.replace(' ', '-') + '-command.html'])
    parts = ['<h1>eingrad</h1><p>Attention and gradients in index notation. '
             '<a href="README.html">Begin here.</a></p><nav><h2>Headers</h2><ul>']
    for header in all_headers:
        parts.append(f'<li><a href="{header.name[:-2]}-h.html">{header.name}</a>: '
                     f'{markup.escape(first_sentence(header.text), False)}</li>')
    parts.append('</ul><h2>Chapters</h2><ul>')
    parts += [f'<li><a href="{c}.html">{c}</a></li>' for c in chapters]
    parts.append('</ul><h2>Commands</h2><ul>')
    parts += [f'<li><a href="{link}">{name}</a></li>' for name, _, link in index
              if link.endswith('-command.html')]
    parts.append('</ul><h2>Functions</h2><ul>')
    parts += [f'<li><a href="{names[n]}"><code>{n}</code></a></li>' for n in sorted(groups)]
    put('index', 'eingrad', '\n'.join(parts) + '</ul></nav>')
    import json
    for name in ('NEWS', 'LICENSE'):
        (out / name).write_text((top / name).read_text())
    (out / 'names.js').write_text('const NAMES=' + json.dumps(index, ensure_ascii=False) + ';\n')
    (out / 'search.js').write_text(SEARCH + '\n')
    (out / 'style.css').write_text(STYLE + '\n')
    shutil.copytree(top / 'docs' / 'pictures', out / 'pictures', dirs_exist_ok=True)
    return broken_links(out)


def broken_links(folder):
    """["page: link"] of links between the pages that lead nowhere."""
    texts = {p.name: p.read_text() for p in folder.glob('*.html')}
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in texts.items()}
    broken = []
    for name, text in texts.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, anchor = link.partition('#')
            target = target or name
            if re.match(r'[a-z]+:', link) or (target not in texts and (folder / target).is_file()):
                continue
            if target not in texts or (anchor and anchor not in ids[target]):
                broken.append(f'{name}: {link}')
    return broken


# -- what the headers lack ----------------------------------------------------------------------


def lacking(top):
    """Lines about functions without a sentence or an example that is compiled."""
    all_headers, used = H.read_all(top / 'include' / 'eingrad'), examples(top)
    groups, _ = H.pages(all_headers)
    out = []
    for base, group in groups.items():
        section = next(s for h in all_headers for s in h.sections if H.home(group) in s.entries)
        if ':' not in section.title and not section.text and not any(e.text for e in group):
            out.append(f'{base}: no sentence in {group[0].header}')
        if not any(e.name in used for e in group):
            out.append(f'{base}: no use of it is compiled')
    out += [f'{member}: no comment says its unit and default' for member in H.untold(all_headers)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('what', choices=['man', 'html', 'check'])
    parser.add_argument('out', type=Path, nargs='?')
    parser.add_argument('--top', type=Path, default=Path('.'))
    parser.add_argument('--program', default='build/eingrad')
    given = parser.parse_args()
    complaints = []
    if given.what == 'man':
        complaints = write_man(given.out, given.top, given.program)
    elif given.what == 'html':
        complaints = write_html(given.out, given.top, given.program)
    else:
        complaints = lacking(given.top)
    for line in complaints:
        print(line, file=sys.stderr)
    sys.exit(bool(complaints))


if __name__ == '__main__':
    main()
