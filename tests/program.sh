#!/bin/sh
# Tests of the program from outside: its output, its refusals, and that no file is incomplete. No
# test needs more than a second.
: "${BUILDDIR:?is set by make check}" "${EG_SRCDIR:?is set by all.sh}"
eingrad=$(cd "$BUILDDIR" && pwd)/eingrad
data=$EG_SRCDIR/tests/data/program
stage=$BUILDDIR/tests/stage/program
rm -rf "$stage" && mkdir -p "$stage" && cd "$stage" && stage=$(pwd) || exit 1
fails=0 count=0 patience=${EG_PATIENCE:-10}
bad() { echo "FAILED: $*"; fails=$((fails + 1)); }

# a number of 1 is not followed by a plural: "1 steps"
many='steps|layers|heads|runs|logs|curves|seeds|settings|pairs|symbols|sequences|tensors|options'
many="$many|entries|calls|sweeps|mutants|numbers|elements|operands|axes|intermediates"
many="$many|multiplications"
singular() {                            # singular COMMAND...: of its files out and err
    said=$(cat out err | grep -E "(^|[^-0-9.e])1 ($many)\\b") && bad "eingrad $*: said '$said'"
    return 0
}
runs() {                                # runs COMMAND...: exit status 0, nothing on stderr
    count=$((count + 1))
    "$eingrad" "$@" >out 2>err </dev/null || bad "eingrad $*: exit status $?: $(cat err)"
    [ ! -s err ] || bad "eingrad $*: said $(cat err)"
    singular "$@"
}
# prints TEXT COMMAND...: the same, and this text is in the output
prints() {
    text=$1; shift
    runs "$@"
    grep -qF -- "$text" out || bad "eingrad $*: '$text' is not in: $(cat out)"
}
# refuses TEXT COMMAND...: exit status 1, nothing on stdout, an error message with this text. A
# command that is not refused may train for minutes, so it is ended after some seconds.
refuses() {
    text=$1; shift
    count=$((count + 1))
    timeout "$patience" "$eingrad" "$@" >out 2>err </dev/null; status=$?
    case $status in
    0) bad "eingrad $*: not refused: $(head -n 1 out)"; return ;;
    124) bad "eingrad $*: not refused within $patience s: $(head -n 1 out)"; return ;;
    esac
    [ $status = 1 ] || bad "eingrad $*: exit status $status, not 1"
    [ ! -s out ] || bad "eingrad $*: refused, but printed $(cat out)"
    head -n 1 err | grep -q '^eingrad: ' || bad "eingrad $*: no error message: $(cat err)"
    grep -qF -- "$text" err || bad "eingrad $*: '$text' is not in: $(cat err)"
    singular "$@"
}
same() { count=$((count + 1)); cmp -s "$1" "$2" || bad "$1 and $2 differ"; }
only() {                                # only FILE...: nothing else is in the folder `new`
    count=$((count + 1))
    found=$(find new -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')
    [ "$found" = "$*${*:+ }" ] || bad "left behind: $found, expected: $*"
    rm -rf new; mkdir new
}
mkdir new

# -- the commands ----------------------------------------------------------------------------------
prints "eingrad " --version
prints "COMMAND --help" --help
called=$("$eingrad" --help | sed -n 's/^usage: \(.*\) COMMAND .*/\1/p') # quoted if need be
for command in train predict evaluate generate attend compare curve einsum explain gradcheck mask \
    ops info grid; do
    prints "usage: $called $command" "$command" --help; done
[ "$(eval "$called --version")" = "$("$eingrad" --version)" ] || bad "$called is not its name"
# commands that it proposes can be typed in a shell, whatever the name of its folder
mkdir "a b" && ln -s "$eingrad" "a b/it's"
"a b/it's" --help | grep -qF "usage: 'a b/it'\\''s' COMMAND" || bad "its name is not quoted"
rm -r "a b"
prints "train --resume 'a b.safetensors' --steps 2" train copy --layers 1 --d-model 8 --heads 2 \
    --batch 2 --steps 1 --out "a b.safetensors"
rm "a b.safetensors"
for word in kernel threads types libraries 'bool c128; stored: f16 bf16 i8 u8'; do
    prints "$word" info; done
prints "da = g b" ops mul
refuses 'there is no command "trian"; is it train?' trian
refuses 'is it mul?' ops mull
refuses 'x: cannot be opened' info x
refuses 'there is "y"' info x y
refuses 'mask has no option --ofset; is it --offset?' mask 'j <= i' i=2 --ofset 1
refuses '--offset needs a value' mask 'j <= i' i=2 j=2 --offset
refuses '--offset must be an integer' mask 'j <= i' i=2 j=2 --offset 1x
refuses '--offset must be an integer from 0' mask 'j <= i' i=2 j=2 --offset -1
refuses '--order must be an integer from 1 to 8, not "9"' gradcheck ij 2x2 --order 9
refuses '--broadcast takes no value' gradcheck ij 2x2 --broadcast=1
refuses '--order is given twice' gradcheck ij 2x2 --order 1 --order 1
"$eingrad" >out 2>err && bad "eingrad without a command: exit status 0"

# the library's errors name its options as the user typed them
refuses 'einsum: --limit is 8 bytes, and every order' \
    explain 'ab,bc,cd->ad' 10x10 10x10 10x10 --limit 8
refuses 'where_mask: --offset is 1, but "j <= i + h" has more than one index that it could move' \
    mask 'j <= i + h' h=2 i=3 j=3 --offset 1
grep -q offset_letter err && bad "mask has no --offset-letter: $(cat err)"
refuses "where_mask: the predicate's tensor 'zz' is not one of 'i', 'j'" mask 'j <= zz[i]' i=3 j=3
grep -q with err && bad "mask has no --with: $(cat err)"
three='gradcheck id,jd,je->ie 3x4 5x4 5x2 --op attention'
# shellcheck disable=SC2086              # words
{
    refuses "'r' of --with is not used in --where or --score" $three --where 'j <= i' --with r=4
    refuses '  give the tensor in --with' $three --where 'r[j]'
}
refuses 'mha "0.self": --where: the predicate' train reverse --where 'j <= q'
# this error is found by the first step
"$eingrad" train reverse --linear --where 'abs(i-j)<3' --out x.st >out 2>err &&
    bad 'train --linear --where: a window was trained'
grep -q 'linear_attention: --where may be "j <= i" and conditions' err ||
    bad "train --linear: $(cat err)"
rm -f x.st
refuses '--alibi belongs to a softmax, which --linear has not' train reverse --linear --alibi
refuses '--linear and --window exclude each other' train reverse --linear --window 4
refuses '--heads must be divisible by --kv-heads: 4 / 3' train copy --heads 4 --kv-heads 3
refuses '--d-model must be divisible by --heads: 64 / 3' train copy --heads 3
refuses 'adam: --steps must be more than --warm-up; they are 20 and 30' train copy \
    --schedule linear --warm-up 30 --steps 20
refuses '--schedule steps needs either --step-size or --milestones that rise; --step-size is 0' \
    train copy --schedule steps
mkdir d_model && refuses ' d_model/.heads-off: cannot be opened' predict d_model/.heads-off a
rmdir d_model

# -- mask ------------------------------------------------------------------------------------------
runs mask 'j <= i' i=3 j=4
printf 'rows i=3, columns j=4\n# . . .\n# # . .\n# # # .\n6 of 12 (50.0 %%)\n' >want
same out want
runs mask 'key <= query' query=2 key=4 --offset 1
printf 'rows query=2, columns key=4\n# # . .\n# # # .\n5 of 8 (62.5 %%)\n' >want
same out want
prints '2 of 8' mask 'i == j' h=1 i=2 j=4
refuses "'j' is not one of" mask 'j <= i' i=3
refuses 'is not a letter and its size' mask 'j <= i' i=3 j=
refuses 'mask needs a predicate' mask 'j <= i'

# -- explain ---------------------------------------------------------------------------------------
prints 'batch b h, free i j, summed d; GEMM m=2 n=3 k=4 × 2' explain 'ibhd,jbhd->ijbh' 2x1x2x4 \
    3x1x2x4
prints 'i = 2: free, of operand 1' explain 'ibhd,jbhd->ijbh' 2x1x2x4 3x1x2x4
prints 'd = 4: summed, of operands 1, 2' explain 'ibhd,jbhd->ijbh' 2x1x2x4 3x1x2x4
prints 'd2: ijbh,ibhd->jbhd' explain 'ibhd,jbhd->ijbh' 2x1x2x4 3x1x2x4
prints 'total: 48 multiplications' explain 'ibhd,jbhd->ijbh' 2x1x2x4 3x1x2x4
prints 'd1: names: key, key -> key' explain 'names: key,key->key' 3 3
refuses "say 'names: head ... -> ...'" explain 'head ... -> ...' 2x3x4x5
prints 'scalars' explain '->' '()'
prints 'scalars' explain '' '()'
prints 'scalars' explain ' ' '()'
prints 'd1: i->ii' explain 'ii->i' 100000000x100000000
prints '1 multiplication, ' explain 'i,i' 1 1
prints '; its intermediate has 40 bytes' explain 'ab,bc,cd' 1x10 10x10 10x1
prints 'the largest of 2 intermediates has 400 bytes' explain 'ab,bc,cd,de->ae' 10x100 100x10 \
    10x100 100x10
prints ' 800 of them kept for the gradient' explain 'ab,bc,cd,de->ae' 10x10 10x10 10x10 10x10
prints ' 400 of them kept for the gradient' explain 'ab,bc,cd,de->ae' 10x10 10x10 10x10 10x10 \
    --keep-limit 400
refuses 'limit' explain 'ab,bc,cd->ad' 10x10 10x10 10x10 --limit 8
prints 'f32 bf16 (2, 3), bf16 (3, 4) -> (2, 4)' explain 'ij,jk' 2x3 3x4 --type bf16
prints 'd1: ij,ij->j' explain 'ij,ij->ij' 1x4 3x4 --broadcast
refuses "index 'i' is 1 in operand 1 but 3 in operand 2" explain 'ij,ij->ij' 1x4 3x4
refuses "index 'j' is 4 in operand 1 but 5 in operand 2" explain 'ij,jk->ik' 3x4 5x2
refuses 'set --broadcast, or leave' explain 'ij,ij->ij' 1x4 3x4
refuses 'einsum' explain '->ij' 2
refuses 'is not a shape' explain ij 4x
refuses 'explain needs SPEC' explain ij

# -- gradcheck -------------------------------------------------------------------------------------
prints 'passed: 128 of 128' gradcheck 'ibhd,jbhd->ijbh' 3x2x2x4 5x2x2x4
prints 'order 2: gradcheck: passed' gradcheck 'ij,jk,kl->il' 2x3 3x2 2x2 --order 2
prints 'order 4: gradcheck: passed: 36 of 36' gradcheck 'ij,jk,kl,lm->im' 3x3 3x3 3x3 3x3 --order 4
prints '8 mutants, 8 caught' gradcheck 'ibhd,jbhd->ijbh' 3x2x2x4 5x2x2x4 --mutate --directions 1
prints '(rtol 1e-11, atol 1e-14)' gradcheck 'ibhd,jbhd->ijbh' 3x2x2x4 5x2x2x4 --complex
prints 'passed: 27 of 27 entries right, 3 covered' gradcheck 'ii->i' 3x3 --full
prints 'passed' gradcheck '->' '()'
prints 'passed' gradcheck '' '()'
prints 'passed' gradcheck ' ' '()'
prints 'passed' gradcheck 'i->ii' 3
refuses 'nothing was tested' gradcheck 'ij,jk->ik' 0x4 4x5
prints 'passed: 12 of 12' gradcheck 'i [j]' 3x4 --op softmax --where 'j <= i'
prints 'passed: 42 of 42' gradcheck 'id,jd,je->ie' 3x4 5x4 5x2 --op attention --where 'j <= i'
prints 'passed: 12 of 12' gradcheck 'b (h d) -> h b d' 2x6 --op rearrange --sizes h=2
prints 'ok 1 - i [j]' gradcheck 'i [j]' 3x4 --op var --tap
refuses 'there is no "sofmax"; is it softmax?' gradcheck 'i [j]' 3x4 --op sofmax
refuses 'gradcheck --help' gradcheck 'i [j]' 3x4 --op nothing
refuses 'is it train?' help trian
refuses 'attention takes 3 operands, and 1 shape was given' gradcheck 'i [j]' 3x4 --op attention
prints 'passed: 46 of 46' gradcheck 'id,jd,je->ie' 3x4 5x4 5x2 --op attention \
    --score '2 * tanh(score + r[clip(i - j, 0, 3)])' --with r=4
refuses '--score is for attention' gradcheck 'i [j]' 3x4 --op softmax --score score
refuses '--with must be as in' gradcheck 'id,jd,je->ie' 3x4 5x4 5x2 --op attention --with r
refuses '--where is for attention and softmax' gradcheck ij,jk 3x4 4x2 --where 'i <= j'
refuses '--sizes must be as in h=2,d=8' gradcheck 'b (h d) -> h b d' 2x6 --op rearrange --sizes h
prints 'points of' gradcheck --points "$data/A_f8.npy" --out new/points.npy
refuses 'needs --results' gradcheck --values new/points.npy
refuses 'is not the shape of' gradcheck --values new/points.npy --results new/points.npy \
    --gradient "$data/B_f8.npy" --points "$data/A_f8.npy" --kinks
# |a| + |b|^0.75 + ln(1 + c²) + |d|^2.5 at a = 0, b = 1e8, c = −2, d = 1e-3: a kink where the
# central difference is 0, as the gradient, and entries whose steps must differ
runs gradcheck --points "$data/check_x.npy" --out new/points.npy
values=new/points.npy results=$data/check_f.npy gradient=$data/check_g.npy
prints 'passed: 4 of 4 entries right, 3 covered' \
    gradcheck --values $values --results "$results" --gradient "$gradient" --kinks
"$eingrad" gradcheck --values $values --results "$results" --gradient "$gradient" >out 2>err &&
    bad "a kink passes without --kinks: $(cat out)"
grep -qF 'entry 0 [0,0]: KINK: analytic 0, left -1, right 1' out || bad "gradcheck: $(cat out)"
# a NaN in entry 3 of a gradient, and of x
for of in g x; do
    cp "$data/check_$of.npy" new/nan_$of.npy
    printf '\0\0\0\0\0\0\370\177' | dd of=new/nan_$of.npy bs=1 seek=152 conv=notrunc 2>dd.err
done
"$eingrad" gradcheck --values $values --results "$results" --gradient new/nan_g.npy --kinks >out &&
    bad "a gradient of NaN passes: $(cat out)"
for line in 'entry 3 [1,1]: WRONG: analytic nan' '3 of 4 entries right'; do
    grep -qF "$line" out || bad "gradcheck, a NaN in entry 3 alone, no '$line': $(cat out)"
done
refuses 'nan_x.npy has nan at element 3' gradcheck --points new/nan_x.npy --out new/p.npy
rm -f new/points.npy new/nan_g.npy new/nan_x.npy
prints 'passed' gradcheck 'ij,ij->ij' 1x4 3x4 --broadcast
refuses "index 'i' is 1 in operand 1 but 3 in operand 2" gradcheck 'ij,ij->ij' 1x4 3x4
refuses "index 'j' is 4 in operand 1 but 5 in operand 2" gradcheck 'ij,jk->ik' 3x4 5x2
refuses 'set --broadcast, or leave' gradcheck 'ij,ij->ij' 1x4 3x4
refuses 'einsum: the string has 2 operands but 1 was given' gradcheck 'ij,jk->ik' 2x3
refuses 'einsum: the string has 1 operand but 2 were given' gradcheck 'ij' 2x3 3x4
refuses 'einsum' gradcheck '->ij' 2
refuses 'einsum' gradcheck '-x' 2
refuses 'is not a shape' gradcheck ij 4x
refuses 'no option -1x2' gradcheck ij -1x2
refuses 'is not a shape' gradcheck ij 99999999999999999999x2
refuses 'gradcheck needs SPEC' gradcheck ij

prints 'passed: 1 of 1 entry right, 1 covered' gradcheck '->' '()'

# -- einsum: byte for byte what NumPy computes and writes ------------------------------------------
for t in f4 f8; do
    runs einsum 'ij,jk->ik' "$data/A_$t.npy" "$data/B_$t.npy" -o new/C.npy --grad "$data/W_$t.npy" \
        -g new/dA.npy -g new/dB.npy
    for name in C dA dB; do same "new/$name.npy" "$data/${name}_$t.npy"; done
    only C.npy dA.npy dB.npy
done
runs einsum 'ij, kj -> ik' "$data/A_i4.npy" "$data/A_i4.npy" --out=new/C.npy
same new/C.npy "$data/C_i4.npy"
runs einsum 'ij,ij->ij' "$data/one.npy" "$data/row.npy" --broadcast -o new/C.npy \
    --grad "$data/Ws.npy" -g new/da.npy -g new/db.npy
same new/C.npy "$data/stretched.npy"
same new/da.npy "$data/done.npy"
same new/db.npy "$data/drow.npy"
runs einsum 'ii->' "$data/square.npy" -onew/t.npy
same new/t.npy "$data/trace.npy"
runs einsum '' "$data/scalar.npy" -o new/t.npy
same new/t.npy "$data/scalar.npy"
only C.npy da.npy db.npy t.npy
prints '3.0' einsum '->' "$data/scalar.npy"
prints '[[0. 3. 6.]' einsum 'ij->ji' "$data/square.npy"
prints 'gradient of operand 1' einsum 'i j ->' "$data/square.npy" --grad "$data/scalar.npy"

A=$data/A_f8.npy B=$data/B_f8.npy W=$data/W_f8.npy
refuses 'operand 1 is f32 but operand 2 is f64' einsum ij,jk "$data/A_f4.npy" "$B" -o new/x.npy
refuses "index 'j'" einsum ij,jk "$A" "$A" -o new/x.npy
refuses 'the string has 2 operands but 1 was given' einsum ij,jk "$A" -o new/x.npy
refuses "index 'i' is 1" einsum 'ij,ij->ij' "$data/one.npy" "$data/row.npy" -o new/x.npy
refuses 'einsum' einsum '->ij' "$A" -o new/x.npy
refuses 'npy: 2x3: cannot be opened: No such file or directory; einsum reads .npy files, shapes' \
    einsum ij,jk 2x3 3x4
refuses '-g is given 1 time for 2 operands' einsum ij,jk "$A" "$B" --grad "$W" \
    -g new/a.npy -o new/x.npy
refuses '-g needs --grad' einsum ij "$A" -g new/a.npy
refuses 'W_f4.npy is f32 (3, 5), but the result is f64 (3, 5)' einsum 'ij,jk->ik' "$A" "$B" \
    --grad "$data/W_f4.npy" -g new/a.npy -g new/b.npy -o new/x.npy
refuses 'the result is f64 (3, 5)' einsum 'ij,jk->ik' "$A" "$B" --grad "$A" -g new/a.npy \
    -g new/b.npy -o new/x.npy
refuses 'only floats have gradients' einsum ij "$data/C_i4.npy" --grad "$data/C_i4.npy" \
    -g new/a.npy -o new/x.npy
refuses 'are one file' einsum ij "$A" --grad "$A" -g new/x.npy -o new/x.npy
refuses 'are one file' einsum ij "$A" --grad "$A" -g new/x.npy -o new/../new/x.npy
ln -s x.npy link.npy
refuses 'link.npy is a link to nowhere' einsum ij "$A" -o link.npy
cp "$A" x.npy
refuses '--out x.npy and -g link.npy are one file' einsum ij "$A" --grad "$A" -o x.npy -g link.npy
same x.npy "$A"
refuses 'the operand x.npy and --out ./link.npy are one file' einsum ij x.npy -o ./link.npy
refuses 'the operand x.npy and -g x.npy are one file' einsum ij x.npy --grad "$A" -g x.npy
refuses '--out x.npy and --grad x.npy are one file' einsum ij "$A" --grad x.npy -o x.npy
refuses '--out is -' einsum ij "$A" -o -
# shellcheck disable=SC2094              # that is the test
"$eingrad" einsum ij x.npy >>x.npy 2>err && bad 'einsum printed into its operand'
grep -q 'standard output and the operand x.npy are one file' err ||
    bad "einsum into its operand: $(cat err)"
"$eingrad" einsum ij x.npy -o /dev/stdout 2>err | cmp -s - x.npy ||
    bad "einsum -o /dev/stdout: $(cat err)"
same x.npy "$A"
rm link.npy x.npy
refuses 'No space left' einsum 'ij,jk->ik' "$A" "$B" --grad "$W" -o new/x.npy -g new/a.npy \
    -g /dev/full
refuses 'No such file' einsum 'ij,jk->ik' "$A" "$B" --grad "$W" -o new/x.npy -g new/a.npy \
    -g new/none/b.npy
refuses 'is a directory' einsum 'ij,jk->ik' "$A" "$B" --grad "$W" -o new/x.npy -g new/a.npy \
    -g "$stage"
refuses 'No such file' einsum ij new/none.npy -o new/x.npy
refuses 'folder' einsum ij "$stage" -o new/x.npy
refuses 'npy' einsum ij "$EG_SRCDIR/tests/program.sh" -o new/x.npy
head -c 140 "$A" >cut.npy
refuses 'cut.npy' einsum ij cut.npy -o new/x.npy
refuses 'einsum needs SPEC' einsum ij
only
said=$( (ulimit -f 0; "$eingrad" einsum ij "$A" -o new/x.npy) 2>&1) &&
    bad 'a file that may not grow was written'
case $said in 'eingrad: '*'File too large'*) ;; *) bad "a file that may not grow: $said" ;; esac
only
if [ -w /dev/full ]; then
    said=$("$eingrad" einsum ij "$A" 2>&1 >/dev/full) && bad 'a full standard output: exit status 0'
    case $said in 'eingrad: '*) ;; *) bad "a full standard output: $said" ;; esac
fi

# -- train: the end that a newcomer sees -----------------------------------------------------------
tiny='--layers 1 --d-model 16 --heads 2 --batch 8 --goal 0'
cd new || exit 1
# shellcheck disable=SC2086  # $tiny is a list of words
runs train copy $tiny --steps 12 --log log.json
for text in 'unseen sequences exactly right' 'input ' 'layer 0, head ' 'gradients checked: ' \
    '12 steps' \
    'eg_einsum("bim,mhd->bihd", x, Wq)' \
    'attend copy.safetensors' 'train --pairs' 'train sort'; do
    count=$((count + 1))
    grep -qF -- "$text" out || bad "train copy: '$text' is not in its output"
done
awk '/gradients checked: /{ exit !($3 == $5 && $3 > 0) }' out ||
    bad "train copy: $(grep 'gradients checked' out)"
[ "$(grep -c '^{.*}$' log.json)" = 14 ] || bad "train copy: the log is $(cat log.json)"
grep -q '.where = ' out &&
    bad 'train copy: an encoder has no causal mask, but the listing shows one'
grep -q 'without its causal mask' out ||
    bad 'train copy: the listing does not say that the mask is left out'
# shellcheck disable=SC2086
{
    prints 'ALARM: the loss rises' train copy $tiny --steps 20 --lr 10 --log alarm.json \
        --out alarm.safetensors
    grep -q '"step": [0-9]*, "alarm": "divergence"' alarm.json ||
        bad "train --lr 10: no alarm in $(cat alarm.json)"
    prints 'ALARM: the loss rises' train copy --goal 0 --steps 12 --lr 0.5 --force \
        --out alarm.safetensors
    prints 'saturated: head 0.' train copy $tiny --steps 20 --lr 0.5 --log alarm.json --force \
        --out alarm.safetensors
    [ "$(grep -c '"saturated": "0.[01]", "value": ' alarm.json)" -ge 1 ] ||
        bad "train --lr 0.5: $(cat alarm.json)"
    prints 'dead: head 0.0 attends to nothing, since no key is allowed (spread 0.000)' \
        train copy $tiny --steps 2 --where '1 < 0' --out nothing.safetensors
    prints 'dead: head 0.0 attends to all positions alike (spread 1.000)' \
        train copy $tiny --steps 2 --score 0 --out alike.safetensors
    rm -f nothing.safetensors alike.safetensors
    for schedule in 'noam --warmup 5' 'steps --step-size 3 --gamma 0.5' 'steps --milestones 4,6' \
        'exponential --gamma 0.9' \
        'wsd --warmup 2 --decay-steps 4' wsd-sqrt linear cosine constant; do
        runs train copy $tiny --steps 8 --schedule $schedule --force --out s.safetensors \
            --log s.json
        if grep -q ALARM out; then bad "train --schedule $schedule: an alarm"; fi
    done
    [ "$(sed -n 's/.*"lr": \([0-9.]*\), "norm".*/\1/p' s.json | sort -u)" = 0.002 ] ||
        bad "train --schedule constant: $(cat s.json)"
}
refuses '--gamma belongs to the schedules steps and exponential, not to noam' train copy \
    --schedule noam --gamma 0.5
refuses '--milestones must be at most 8 increasing integers' train copy --schedule steps \
    --milestones 3,2
refuses 'adam: --gamma must be a number above 0, not 0' train copy --schedule exponential
refuses '--schedule is noam, but s.safetensors has constant' train --schedule noam --resume \
    s.safetensors
rm -f alarm.json alarm.safetensors s.json s.safetensors
# options of model and optimiser are printed at the start, stored and resumed; others are refused
# shellcheck disable=SC2086
while IFS='|' read -r option said; do
    prints "$said" train reverse $tiny --steps 2 $option --force --out o.safetensors --log o.json
    runs train --resume o.safetensors --steps 3 $option
    runs predict o.safetensors abcd
done <<'END'
--rotary|rotary 10000
--alibi --kv-heads 1|kv_heads 1, alibi yes
--window 4|where abs(i - j) < 4
--window 4 --where j!=i+1 --model decoder|where (j!=i+1) & abs(i - j) < 4
--score 30*tanh(score/30)|score 30*tanh(score/30)
--linear --model seq2seq|linear yes
--norm post|norm post
--norm rms --ffn swiglu|norm rms, ffn swiglu
--optimiser adamw --weight-decay 0.1|adamw, weight decay 0.1
--optimiser sgd --momentum 0.9 --warm-up 1|sgd, momentum 0.9
--diversity 0.1|diversity 0.1
--group tokens.E:frozen|groups "tokens.E: frozen"
END
for text in '"config": "", "optimiser": "adam"' '"heads": {"0.0": {"rows": ' '"largest": ' \
    '"previous": ' '"parameters": {"tokens.E": {"norm": ' '"gradient": ' '"bytes": '; do
    grep -qF "$text" o.json || bad "train --log: '$text' is not in $(cat o.json)"
done
# 0 is no weight decay, and not the default of adamw
# shellcheck disable=SC2086
{
    runs train reverse $tiny --steps 2 --optimiser adamw --out d.safetensors
    runs train reverse $tiny --steps 2 --optimiser adamw --weight-decay 0 --out d0.safetensors
}
if cmp -s d.safetensors d0.safetensors; then bad 'train: adamw --weight-decay 0 decays'; fi
"$eingrad" compare d.safetensors d0.safetensors >out
grep -q '^tokens.E: ' out ||
    bad "train: adamw --weight-decay 0 has the parameters of 0.01: $(cat out)"
grep -qx 'weight-decay: 0.01, 0' out || bad "compare: no weight decay in effect in $(cat out)"
# the default gives the run of its stated number, which differs from that without the option
# shellcheck disable=SC2086
runs train reverse $tiny --steps 2 --optimiser adamw --weight-decay 0.01 --out d.safetensors
# shellcheck disable=SC2086
refuses 'holds another run (weight-decay 0, not 0.01)' train reverse $tiny --steps 2 \
    --optimiser adamw --out d0.safetensors
runs train --resume d0.safetensors --weight-decay 0 --steps 3
runs train --resume d.safetensors --weight-decay 0.01 --steps 3
rm d.safetensors d0.safetensors
grep -qF '"groups": "tokens.E: frozen"' o.json || bad "train --log: no groups in $(cat o.json)"
grep -qF '"gradient": null' o.json || bad "train --log: a frozen parameter in $(cat o.json)"
refuses '--group: "tokens.E" is no group, such as "*.b *.gain: lr-factor 2' \
    train copy --group tokens.E
refuses 'adam: no parameter has a name of group 1, "token.E"' train copy --group 'token.E: frozen'
refuses '--group is given, but o.safetensors has other groups' \
    train --group 'tokens.E: lr-factor 2' --resume o.safetensors
# shellcheck disable=SC2086  # $tiny is a list of words
refuses 'o.safetensors holds another run (group tokens.E: frozen, not tokens.E: lr_factor 2)' \
    train reverse $tiny --steps 2 --group 'tokens.E: lr-factor 2' --out o.safetensors
refuses '--ffn must be one of gelu|relu|swiglu|geglu, not "swigle"; is it swiglu?' train copy \
    --ffn swigle
refuses '--norm must be one of pre|post|rms' train copy --norm after
refuses 'no option --kv-head; is it --kv-heads?' train copy --kv-head 2
refuses '--alibi is given, but o.safetensors has none' train --alibi --resume o.safetensors
refuses '--norm is rms, but o.safetensors has pre' train --norm rms --resume o.safetensors
refuses 'attends where "", not where "abs(i - j) < 4"' train --window 4 --resume o.safetensors
rm -f o.safetensors o.json
prints '' predict copy.safetensors hello world
[ "$(wc -l <out)" = 2 ] || bad "predict: two inputs, $(wc -l <out) answers"
printf 'hello\nworld\r\n' | "$eingrad" predict copy.safetensors >out2 ||
    bad 'predict: lines of standard input'
same out out2; mv out answers
prints '0.self.W_q                         f32 (16, 2, 8)' info copy.safetensors
for text in 'clip                               0' 'symbols                            (26 lines)' \
    'schedule                           cosine' 'milestones                         none' \
    "22 tensors, 4525 numbers; the optimiser's state: 47 tensors"; do
    grep -qF -- "$text" out || bad "info copy.safetensors: '$text' is not in: $(cat out)"; done
[ "$(grep -c '^milestone' out)" = 1 ] || bad 'info: milestones are one option'
prints 'layer 0, head 1' attend copy.safetensors hello
prints 'mean over pairs of heads: 0.' attend copy.safetensors hello
runs attend copy.safetensors hello -o map.svg
grep -q '</svg>' map.svg || bad 'attend: map.svg is no SVG'
if "$eingrad" info | grep -q 'no cairo'; then
    refuses 'built without cairo' attend copy.safetensors hello -o map.png; : >map.png
else
    runs attend copy.safetensors hello -o map.png
    [ "$(head -c 4 map.png | od -An -tx1 | tr -d ' ')" = 89504e47 ] ||
        bad 'attend: map.png is no PNG'
fi
refuses '"!" is not in the vocabulary' predict copy.safetensors 'he!'
refuses 'an encoder computes all positions at once and cannot continue a text; predict gives' \
    generate copy.safetensors --prompt hello
refuses '"!" is not in the vocabulary' attend copy.safetensors 'he!' -o no.svg
refuses 'more than 16 symbols' predict copy.safetensors abcdefghijklmnopq
refuses 'the input is empty' predict copy.safetensors ''
refuses '-o must end in .png or .svg, or in .npz, not "no.jpg"' attend copy.safetensors hello \
    -o no.jpg
refuses 'No such file' attend copy.safetensors hello -o none/no.svg
refuses 'attend needs a model and one input' attend copy.safetensors
refuses 'No such file' predict none.safetensors a
refuses 'folder' predict .. a
refuses 'safetensors' predict log.json a
head -c 9000 copy.safetensors >../cut.safetensors
refuses 'cut.safetensors' predict ../cut.safetensors a
refuses 'not a model' predict "$EG_SRCDIR/tests/data/nn.safetensors" a
# an input that cannot be answered is named and has an empty line; the next one is answered
printf 'hello\nhe!\n\nab\0c\nworld' | "$eingrad" predict copy.safetensors >out2 2>err2
[ $? = 1 ] || bad 'predict: three bad lines: the exit status is not 1'
[ "$(wc -l <out2)" = 5 ] || bad "predict: five lines, $(wc -l <out2) answers"
{ head -n 1 answers; printf '\n\n\n'; tail -n 1 answers; } >want
same out2 want
cut -d : -f 1-3 err2 >want2
printf 'eingrad: line %s\n' '2: copy' '3: copy' '4: a zero byte' | cmp -s - want2 ||
    bad "predict: three bad lines: $(cat err2)"
# a line that does not end takes no memory
{ head -c 2000000 /dev/zero; echo; echo hello; head -c 70000 /dev/zero | tr '\0' a; } |
    "$eingrad" predict copy.safetensors >out2 2>err2
[ $? = 1 ] || bad 'predict: long lines: the exit status is not 1'
[ "$(wc -l <out2)" = 3 ] || bad "predict: long lines: $(wc -l <out2) answers"
printf 'eingrad: line %s\n' '1: a zero byte' '3: more than 65536 bytes' | cmp -s - err2 ||
    bad "predict: long lines: $(cat err2)"
"$eingrad" predict copy.safetensors hello 'he!' '' world >out2 2>err2 &&
    bad 'predict: two bad inputs: exit status 0'
{ head -n 1 answers; printf '\n\n'; tail -n 1 answers; } >want
same out2 want
[ "$(grep -c '^eingrad: input [23]: copy: ' err2)" = 2 ] || bad "predict: bad inputs: $(cat err2)"
rm -f answers want want2
rm -f out err out2 err2; cd ..
only copy.safetensors log.json map.png map.svg

# -- two models: maps side by side, what differs, curves of two logs -------------------------------
cd new || exit 1
for seed in 1 2; do
    # shellcheck disable=SC2086
    runs train copy $tiny --steps 4 --seed $seed --out $seed.st --log $seed.json
done
# shellcheck disable=SC2086
runs train reverse --layers 2 --d-model 16 --heads 2 --batch 8 --goal 0 --steps 1 --out other.st
prints 'layer 0, head 1: difference' attend 1.st hello --against 2.st
prints ' difference' attend 1.st hello --against 2.st
runs attend 1.st hello --against 2.st -o d.svg
for text in 'layer 0, head 0: 1.st' 'layer 0, head 0: 2.st' 'layer 0, head 0: difference' weight \
    'encoder attention: hello'; do
    grep -qF ">$text</text>" d.svg || bad "attend --against: '$text' is not in the picture"
done
prints 'weights (layer head row column) of 1 layer of 2 heads, 5 x 5 tokens' \
    attend 1.st hello --against 2.st -o d.npz
for name in weights against difference; do
    grep -q "$name.npy" d.npz || bad "attend -o d.npz: no $name"
done
sed 's/"task":"copy"/"task":"cupy"/' 1.st >cupy.st # the task of a program in C
refuses 'the task "cupy" is not one of eingrad'\''s; a program in C that has the task' \
    predict cupy.st hello
rm cupy.st
refuses '1.st has 1 layer of 2 heads, other.st has 2 of 2' attend 1.st hello --against other.st
refuses 'No such file' attend 1.st hello --against none.st
refuses 'the symbol "!" is not in the vocabulary' attend 1.st 'he!' --against 2.st
if [ -w /dev/full ]; then
    count=$((count + 1))
    "$eingrad" compare 1.st 2.st 2>err >/dev/full
    grep -qF 'standard output: No space left' err || bad "compare on a full disk: $(cat err)"
fi
prints 'the same: ' compare 1.st 1.st --input hello
count=$((count + 1))
"$eingrad" compare 1.st 2.st --input hello >out 2>err &&
    bad 'compare: exit status 0, but they differ'
for text in 'seed: 1, 2' 'the first difference is ' 'tokens.E: ' \
    'attention: layer 0, head 1 differs' \
    ' tensors differ, and so do the attention weights'; do
    grep -qF "$text" out || bad "compare: '$text' is not in $(cat out err)"
done
for one in 'rotary 1' 'schedule-wsd 2'; do # options are said a line each, as they are given
    set -- "--${one% *}"; [ "$1" = --rotary ] || set -- --schedule wsd --decay-steps 1 --clip 1 \
        --dropout 0.1 --score 2*score
    runs train reverse --layers 1 --d-model 16 --heads 2 --batch 8 --goal 0 --steps 30 "$@" \
        --out "c${one#* }.st"
    grep -q 'attention that was trained' out && bad "train $*: it shows another attention"
done
"$eingrad" compare c1.st c2.st >out 2>err
for text in 'rotary: only the first has it' 'score: only the second has it' 'dropout: 0, 0.1' \
    'schedule: cosine, wsd' 'decay-steps: 0, 1' 'clip: 0, 1'; do
    grep -qx "$text" out || bad "compare: '$text' is no line of $(cat out err)"
done
for one in '--rotary --clip 1:clip 0, not 1' ':rotary 10000, which this run lacks' \
    '--rotary --label-smoothing 0.1:label-smoothing 0, not 0.1' \
    '--rotary --kv-heads 1:kv-heads 1, which the file lacks'; do
    # shellcheck disable=SC2086
    refuses "holds another run (${one#*:})" train reverse --layers 1 --d-model 16 --heads 2 \
        --batch 8 --goal 0 --steps 30 ${one%%:*} --out c1.st
done
rm c1.st c2.st
# names in a file of someone else's: no control character reaches the terminal
for k in 1 2; do
    header="{\"__metadata__\":{\"k\\u001b[31m\":\"v$k\\u0007\"},\"t$k\\u001b\":\
{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
    # shellcheck disable=SC2059
    { printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf '%s ' "$header"; } >e$k.st
done
count=$((count + 1))
"$eingrad" compare e1.st e2.st >out 2>err
for text in 'k?[31m: v1?, v2?' 't1?: only the first has it' 't2?: only the second has it'; do
    grep -qxF "$text" out || bad "compare of foreign names: '$text' is no line of $(cat -v out err)"
done
rm e1.st e2.st
refuses 'No such file' compare 1.st none.st
refuses 'compare needs two files' compare 1.st
# a path or an argument with an end of line: the message has one line
ends=$(printf 'no\nfile')
for command in predict 'train --text' 'train --steps' 'train copy --log' 'curve -o c.svg'; do
    # shellcheck disable=SC2086
    refuses 'no?file' $command "$ends/x"
    [ "$(wc -l <err)" = 1 ] || bad "$command of a path with an end of line: $(cat err)"
done
refuses '/dev/zero is a device, and may have no end' compare 1.st /dev/zero
refuses '/dev/zero is a device, and may have no end' train --text /dev/zero
refuses '/dev/zero is a device, and may have no end' train --resume /dev/zero
refuses '/dev/zero is a device, and may have no end' curve /dev/zero -o c.svg
refuses 'is not in the vocabulary' compare 1.st 1.st --input 'he!'
[ "$(wc -l <err)" = 1 ] || bad "compare says more than once: $(cat err)"
prints 'c.svg: 2 curves of 2 logs' curve 1.json 2.json --columns loss -o c.svg --log-axis
for text in 1 2 step 'loss (nats a token)'; do
    grep -qF ">$text</text>" c.svg || bad "curve: '$text' is not in the picture"
done
[ "$(grep -c '<polyline' c.svg)" = 4 ] || bad "curve: $(grep -c '<polyline' c.svg) lines, not 4"
prints '2 curves of 1 log' curve 1.json --columns tokens,lr -o c.svg
grep -qF '>tokens, lr</text>' c.svg || bad 'curve: no names of the columns'
# each curve has a colour and dashes of its own, also of many columns and of many logs
same_looks() { # FILE NUMBER: the lines of the picture with this number of curves
    [ "$(sed -n 's/^<polyline.*stroke="\(#[0-9a-f]*\)".*stroke-dasharray="\([^"]*\)".*/\1 \2/p
             s/^<polyline.*stroke="\(#[0-9a-f]*\)".*/\1/p' "$1" | sort -u | wc -l)" = "$2" ] ||
        bad "curve: two of $2 curves look alike"; }
prints '12 curves of 2 logs' curve 1.json 2.json -o c.svg \
    --columns loss,unseen_loss,lr,norm,seconds,tokens_per_second
same_looks c.svg 12
for k in 3 4 5 6 7 8 9; do cp 1.json $k.json; done
prints '18 curves of 9 logs' curve 1.json 2.json 3.json 4.json 5.json 6.json 7.json 8.json 9.json \
    --columns loss,lr -o c.svg
same_looks c.svg 18
rm 3.json 4.json 5.json 6.json 7.json 8.json 9.json
refuses 'none.json: No such file' curve 1.json none.json -o c.svg
refuses 'd.svg: line 1 is not a JSON object' curve d.svg -o c.svg
{ cat 1.json; printf '{"step": 9'; } >half.json
prints 'half.json ends in half a line, which is left out' curve half.json -o c.svg
rm -f half.json
refuses '1.json: no line has a step and "bananas"' curve 1.json --columns bananas -o c.svg
refuses '--columns must be from 1 to 8 names' curve 1.json --columns loss,,lr -o c.svg
refuses '-o must end in .png or .svg, not "c.jpg"' curve 1.json -o c.jpg
refuses 'curve needs a log and -o FILE' curve 1.json
refuses 'are one file; nothing was done' curve 1.json -o ./1.json
rm -f out err; cd ..
only 1.json 1.st 2.json 2.st c.svg d.npz d.svg other.st

# -- train: a checkpoint at any moment, resumed to the same bits, for any number of threads --------
run="--layers 1 --d-model 16 --heads 2 --batch 8 --goal 0 --steps 60 --dropout 0.1 --seed 3"
started() { k=0; while [ "0$(grep -c . "$1" 2>/dev/null)" -lt 8 ] && [ $k -lt 500 ]; do
    sleep 0.02; k=$((k + 1)); done; }
# shellcheck disable=SC2086
{
    runs train reverse $run --threads 1 --out new/whole.safetensors
    runs train reverse $run --threads 2 --out new/two.safetensors
    same new/whole.safetensors new/two.safetensors
    "$eingrad" train reverse $run --threads 1 --out new/killed.safetensors --every 1 --log log2 \
        >out 2>err & pid=$!
    started log2; kill -KILL $pid; wait $pid 2>/dev/null
    [ -f new/killed.safetensors ] || bad 'kill -9: no checkpoint'
    runs train reverse $run --threads 2 --out new/killed.safetensors --resume
    same new/whole.safetensors new/killed.safetensors
    "$eingrad" train reverse $run --threads 2 --out new/stopped.safetensors --log log3 >out 2>err \
        & pid=$!
    started log3; kill -INT $pid; wait $pid; status=$?
    if ! grep -q 'exactly right' out; then          # a fast machine may have come to its report
        [ $status = 130 ] || bad "an interrupt: exit status $status"
        # after the last step, in the evaluation, there is nothing to resume
        grep -q -e 'train --resume new/stopped.safetensors' -e '^step   60 ' out ||
            bad "an interrupt: $(cat out err)"
    fi
    runs train --resume new/stopped.safetensors --threads 1
    same new/whole.safetensors new/stopped.safetensors
    prints 'nothing left to do' train --resume new/stopped.safetensors
    prints '61 steps, ' train --resume new/stopped.safetensors --goal 1 --early-stop 2 --steps 61
    refuses '(goal 1, not 0)' train reverse $run --out new/stopped.safetensors
    refuses '--layers is 2, but new/whole.safetensors has 1' train --layers 2 --resume \
        new/whole.safetensors
    refuses 'was trained on reverse, not on sort' train sort --resume new/whole.safetensors
    refuses '--steps is 20, but new/whole.safetensors has done 60' train --resume \
        new/whole.safetensors --steps 20
    refuses 'cut.safetensors' train --resume cut.safetensors
    refuses 'No such file' train --resume new/none.safetensors
}
only killed.safetensors stopped.safetensors two.safetensors whole.safetensors

# -- train: killed at any moment, EG_KILLS times (5) -----------------------------------------------
# The next start gives the bits of an uninterrupted run and leaves no other file.
# shellcheck disable=SC2086
{
    runs train reverse $run --threads 1 --out new/whole --best new/top
    cp new/whole whole; cp new/top top; only top whole
    k=0 left=0 late=0 kills=${EG_KILLS:-5}
    while [ $k -lt "$kills" ]; do
        k=$((k + 1)); count=$((count + 1))
        "$eingrad" train reverse $run --threads 1 --out new/whole --best new/top --every 1 \
            >out 2>err & pid=$!
        sleep "$(awk -v k=$k 'BEGIN { srand(k); printf "%.4f", 0.5 * rand() }')"
        kill -KILL $pid 2>err || late=$((late + 1)); wait $pid 2>err
        left=$((left + $(find new -name '.*' | wc -l)))
        from=--resume; [ -f new/whole ] || from=
        runs train reverse $run --threads 2 --out new/whole --best new/top $from
        same new/whole whole; same new/top top
        only top whole
    done
}
echo "$kills kills, $late after the end; $left files were left until the next start"

# -- train: refused before the first step, nothing written -----------------------------------------
cd new || exit 1
in=$stage/pairs
mkdir -p "$in"
awk 'BEGIN { for (k = 0; k < 200; k++) print "a" k "\tb " k }' >"$in/good.tsv"
: >"$in/empty.tsv"
printf 'a\tb\nc d\n' >"$in/tab.tsv"
printf 'a\tb\n\nc\td\n' >"$in/blank.tsv"
printf 'a\tb\nc\t\377\n' >"$in/utf8.tsv"
printf 'a\tb\n' >"$in/one.tsv"
ln -s none "$in/nowhere"
mkfifo "$in/pipe"
fresh() { text=$1; shift; refuses "$text" train "$@"; rm -f out err; }
fresh 'there is no task "revers"; is it reverse?' revers
fresh 'there is no task "qqqqqq"; there are reverse, copy' qqqqqq
fresh 'train needs a task or --pairs FILE or --text FILE' --steps 3
fresh 'not both' reverse --pairs "$in/good.tsv"
fresh 'not both' --text "$in/good.tsv" --pairs "$in/good.tsv"
fresh 'train takes one task' reverse sort
fresh 'train has no option --layer; is it --layers?' reverse --layer 2
fresh '--layers must be an integer from 1 to 1000, not "0"' reverse --layers 0
fresh '--layers must be an integer' reverse --layers two
fresh '--lr must be a number' reverse --lr nan
fresh '--dropout must be a number from 0 to 0.99, not "1.5"' reverse --dropout 1.5
fresh '--clip must be a number from 1e-09 to 1e+09, not "0x10"' reverse --clip 0x10
fresh '--model must be one of encoder|decoder|seq2seq, not "rnn"' reverse --model rnn
fresh '--steps needs a value' reverse --steps
fresh '64' reverse --heads 5
fresh 'heads' reverse --heads 5
fresh 'encoder needs input and output of one length' addition --model encoder
fresh 'encoder needs input and output of one length' --pairs "$in/good.tsv" --model encoder
fresh 'empty.tsv: no pairs' --pairs "$in/empty.tsv"
fresh 'tab.tsv:2: a line is input TAB output' --pairs "$in/tab.tsv"
fresh 'blank.tsv:2: a line is' --pairs "$in/blank.tsv"
fresh 'utf8.tsv:2: not UTF-8' --pairs "$in/utf8.tsv"
fresh 'one.tsv: one input in ten is held out for tests, but there is only one pair' \
    --pairs "$in/one.tsv"
fresh 'none.tsv: No such file' --pairs none.tsv
fresh 'directory' --pairs "$in"
fresh 'directory' reverse --out "$in"
fresh 'No such file' reverse --out none/x.safetensors
fresh 'No such file' reverse --log none/x.json
fresh '--log x and --out x are one file' reverse --log x --out x
: >"$in/none.txt"; printf a >"$in/one.txt"
fresh 'none.txt: a text of 0 characters; 20 are needed' --text "$in/none.txt"
fresh 'one.txt: a text of 1 character; 20 are needed' --text "$in/one.txt"
fresh 'nowhere.txt: No such file' --text nowhere.txt
fresh 'directory' --text "$in"
fresh 'is longer than what is held out of' --text "$in/good.tsv" --context 2000
fresh 'only a text has one' reverse --context 8
fresh 'have more than 4.29e+13 parameters' reverse --layers 1000 --d-model 65536 --heads 2
fresh 'GB of memory' reverse --layers 1000 --d-model 16384 --heads 2 --model seq2seq
fresh 'a text is learnt by a decoder' --text "$in/good.tsv" --model encoder
# before the text is read
fresh 'a text is learnt by a decoder' --text "$in/one.txt" --model seq2seq
fresh 'heads' --text "$in/one.txt" --heads 5
fresh 'belongs to the schedule steps' --text "$in/one.txt" --step-size 4
fresh 'no parameter has a name of group 1' --text "$in/one.txt" --group 'x: frozen'
fresh 'momentum belongs to' --text "$in/one.txt" --momentum 0.5
fresh 'train has no option --micro-batches any more: a batch comes in blocks by itself' \
    reverse --micro-batches 4
fresh '--block must be an integer from 1' reverse --block 0
fresh '--label-smoothing must be a number from 0 to 0.99, not "1"' reverse --label-smoothing 1
fresh '--early-stop must be an integer from 0' reverse --early-stop -1
fresh 'No such file' reverse --best none/x.safetensors
fresh 'No such file' reverse --curve none/x.svg
fresh '--curve must end in .png or .svg, not "x.jpg"' reverse --curve x.jpg
fresh '--best x and --out ./x are one file' reverse --best x --out ./x
fresh '--log x.svg and --curve x.svg are one file' reverse --log x.svg --curve x.svg
fresh 'one file' reverse --log reverse.safetensors
fresh 'is a link to nowhere' reverse --out "$in/nowhere"
fresh 'is a link to nowhere' reverse --log "$in/nowhere"
fresh 'is a pipe' reverse --out "$in/pipe"
fresh 'is a pipe' reverse --best "$in/pipe"
fresh '--out is -; a file of that name is ./-' reverse --out -
fresh 'standard output and --log /dev/stdout are one file' reverse --log /dev/stdout
fresh 'standard output and --out /dev/stdout are one file' reverse --out /dev/stdout
fresh '--log none/x: the folder none: No such file' reverse --log none/x
fresh 'good.tsv is no log of eingrad; --force writes to it' reverse --log "$in/good.tsv"
if [ -w /dev/full ]; then
    fresh 'is a device' reverse --out /dev/full
    fresh '--log /dev/full: No space left' reverse --log /dev/full
fi
said=$( (ulimit -f 1; "$eingrad" train reverse) 2>&1) &&
    bad 'train: a file that may not grow was written'
case $said in 'eingrad: '*'File too large'*) ;; *) bad "train: a file that may not grow: $said" ;;
    esac
# a full disk, where a process may mount one
if unshare -rm mount -t tmpfs -o size=4k none . 2>/dev/null; then
    # shellcheck disable=SC2016  # expanded by the inner shell
    EINGRAD=$eingrad unshare -rm sh -c 'mkdir full && mount -t tmpfs -o size=4k none full &&
        head -c 4096 /dev/zero >full/fill && ! "$EINGRAD" train reverse --log full/log 2>&1 &&
        [ ! -e full/log ]' >full.txt || bad "train: a log on a full disk: $(cat full.txt)"
    grep -qF -- '--log full/log: No space left' full.txt || bad "a full disk: $(cat full.txt)"
    # shellcheck disable=SC2016
    EINGRAD=$eingrad unshare -rm sh -c 'mount -t tmpfs -o size=8k none full &&
        echo "{\"data\": old}" >full/log && ! head -c 8192 /dev/zero >full/fill 2>/dev/null;
        ! "$EINGRAD" train reverse --log full/log 2>&1 && ls full &&
        cat full/log' >full.txt || bad "train: a log on a full disk: $(cat full.txt)"
    [ "$(tail -n 3 full.txt | tr '\n' ' ')" = 'fill log {"data": old} ' ] ||
        bad "train: an older log on a full disk: $(cat full.txt)"
    rm -r full full.txt
fi
cd ..
only

# -- train: pairs of the user's own ----------------------------------------------------------------
# shellcheck disable=SC2086
runs train --pairs "$in/good.tsv" $tiny --steps 3 --out new/good.safetensors
prints 'b' predict new/good.safetensors a7
refuses 'there is no part "cross" in a model "decoder"' attend new/good.safetensors a7 --part cross
prints 'sequences exactly right' evaluate new/good.safetensors --heads-off 0.1
# shellcheck disable=SC2086
runs train --pairs "$EG_SRCDIR/examples/data/dates.tsv" $tiny --steps 2 --out new/dates.safetensors
only dates.safetensors good.safetensors

# -- train: the best model and the log of a run that goes on ---------------------------------------
# shellcheck disable=SC2086
{
    runs train copy $tiny --steps 4 --best new/b --log new/l.jsonl --out new/o
    cp new/b b; rm new/b
    prints 'nothing left to do' train --resume new/o --best new/b
    same new/b b; rm b                          # the model of the last step was the best
    printf '{"step": 5, "lo' >>new/l.jsonl
    prints 'new/l.jsonl ended in half a line, which is removed' train --resume new/o --steps 6 \
        --best new/b --log new/l.jsonl
    tail -c 1 new/l.jsonl | od -c | grep -q '\\n' || bad "a log without an end"
    prints '2 curves of 1 log' curve new/l.jsonl -o new/l.svg
    printf '%s\n' '{"data": "x", "step": 0}' '{"step": 1, "loss": 3}' '{"step": 9, "loss": 2}' \
        '{"data": "x", "step": 1}' '{"step": 2, "loss": 2}' '{"step": 3, "loss": 2}' \
        >new/again.jsonl
    printf '%s\n' '{"data": "x", "step": 0}' '{"step": 1, "loss": 3}' '{"step": 2, "loss": 2}' \
        '{"step": 3, "loss": 2}' >new/once.jsonl
    for log in again once; do
        runs curve new/$log.jsonl -o new/$log.svg --columns loss --title t; done
    same new/again.svg new/once.svg             # without the step that was taken again
    printf '\357\273\277a\tb\nc\td\n' >new/bom.tsv
    prints '2 pairs, 4 symbols' train --pairs new/bom.tsv $tiny --steps 1 --out new/p
    export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0
    refuses 'start it once, without mpirun' grid copy $tiny --steps 2 --out new/grid
    unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
}
only again.jsonl again.svg b bom.tsv l.jsonl l.svg o once.jsonl once.svg p

# -- train: no output is an input, or what another run made ----------------------------------------
cd new || exit 1
cp "$in/good.tsv" p.tsv; ln -s p.tsv soft.tsv; ln p.tsv hard.tsv; mkdir sub
# shellcheck disable=SC2086
{
    for out in p.tsv ./p.tsv sub/../p.tsv soft.tsv hard.tsv "$stage/new/p.tsv"; do
        for option in --out --best --log; do
            fresh "--pairs p.tsv and $option $out are one file; nothing was done" \
                --pairs p.tsv $tiny --steps 2 $option "$out"
        done
        fresh "--text $out and --out p.tsv are one file" --text "$out" $tiny --steps 2 --out p.tsv
    done
    ln -s p.tsv p.svg
    fresh '--pairs p.tsv and --curve p.svg are one file' --pairs p.tsv $tiny --steps 2 --curve p.svg
    same p.tsv "$in/good.tsv"
    fresh 'p.tsv is no checkpoint of eingrad; --force replaces it' copy $tiny --steps 2 --out p.tsv
    runs train copy $tiny --steps 4; cp copy.safetensors 4
    runs train copy $tiny --steps 4; same copy.safetensors 4
    fresh 'holds another run (steps 4, not 3): --resume copy.safetensors goes on with it' \
        copy $tiny --steps 3
    fresh '(seed 0, not 1)' copy $tiny --steps 4 --seed 1
    fresh '(task copy, not sort)' sort $tiny --steps 4 --out copy.safetensors
    fresh '--best copy.safetensors holds another run (task copy, not sort)' \
        sort $tiny --steps 4 --best copy.safetensors
    fresh '--log ./copy.safetensors and the checkpoint copy.safetensors are one file' \
        --resume copy.safetensors --log ./copy.safetensors
    same copy.safetensors 4
    runs train --resume copy.safetensors --steps 6
    fresh 'holds this run after step 6 of more than 4' copy $tiny --steps 4
    runs train copy $tiny --steps 4 --force; same copy.safetensors 4
    runs train --pairs p.tsv $tiny --steps 2; cp p.safetensors 4
    runs train --pairs p.tsv $tiny --steps 2 --model seq2seq
    same p.safetensors 4
    runs train --pairs p.tsv $tiny --steps 2 --model seq2seq --resume
    printf 'b1\tc 1\n' >>hard.tsv
    fresh 'p.safetensors holds another run (other pairs)' --pairs p.tsv $tiny --steps 2
    # shellcheck disable=SC2094
    "$eingrad" predict p.safetensors a1 >>p.safetensors 2>err &&
        bad 'predict printed into its model'
    grep -q 'standard output and the model p.safetensors are one file' err ||
        bad "predict into its model: $(cat err)"
    same p.safetensors 4
    "$eingrad" predict p.safetensors <hard.tsv >>p.tsv 2>err && bad 'predict printed into its input'
    grep -q 'standard output and standard input are one file' err ||
        bad "predict into its input: $(cat err)"
    runs train --text p.tsv $tiny --context 8 --steps 2 --out t.safetensors; rm t-best.safetensors
    fresh '--log soft.tsv and the data p.tsv are one file' \
        --resume t.safetensors --steps 3 --log soft.tsv
}
rm -f out err; cd ..
only 4 copy.safetensors hard.tsv p-seq2seq.safetensors p.safetensors p.svg p.tsv soft.tsv sub \
    t.safetensors

# -- train: closed streams, a terminal or a reader that disappears --------------------------------
# shellcheck disable=SC2086
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    count=$((count + 1))
    eval "\"\$eingrad\" train copy \$tiny --steps 3 --log log.json --out new/x --force $closed" \
        >out 2>err
    [ "$(grep -c '^{.*}$' log.json)$(wc -l <log.json)" = 55 ] ||
        bad "$closed: the log is $(cat log.json)"
    rm -f new/x
done
long="copy --layers 1 --d-model 16 --heads 2 --batch 8 --goal 0 --steps 100000 --every 100000"
for signal in INT:130 TERM:143 HUP:129; do
    want=${signal#*:} signal=${signal%:*}
    count=$((count + 1)); rm -f log.json
    # shellcheck disable=SC2086
    # what runs these tests may ignore SIGHUP (nohup)
    env --default-signal=HUP "$eingrad" train $long --out "new/$signal" --log log.json >out 2>err \
        & pid=$!
    started log.json; kill -"$signal" $pid; [ "$signal" != HUP ] || kill -HUP $pid
    wait $pid; status=$?
    [ $status = "$want" ] || bad "SIG$signal: exit status $status: $(cat err)"
    grep -q "saved in new/$signal; to go on" out || bad "SIG$signal: $(cat out err)"
    runs predict "new/$signal" abc
done
count=$((count + 1)); rm -f log.json
# shellcheck disable=SC2086
(trap '' HUP; exec "$eingrad" train $long --out new/nohup --log log.json >out 2>err) & pid=$!
started log.json; kill -HUP $pid; sleep 0.1; kill -0 $pid || bad 'an ignored SIGHUP ended the run'
kill -TERM $pid; wait $pid
[ -f new/nohup ] || bad "SIGTERM after an ignored SIGHUP: $(cat out err)"
count=$((count + 1))
# shellcheck disable=SC2086
"$eingrad" train $long --out new/pipe 2>err | head -n 2 >out
runs predict new/pipe abc
# a run that is started again and interrupted early does not replace its own later checkpoint
count=$((count + 1)); rm -f log.json
# shellcheck disable=SC2086
"$eingrad" train $long --out new/again --log log.json >out 2>err & pid=$!
k=0
while [ "0$(grep -c . log.json 2>/dev/null)" -lt 2000 ] && [ $k -lt 500 ]; do
    sleep 0.02; k=$((k + 1))
done
kill -INT $pid; wait $pid; cp new/again again; rm -f log.json
# shellcheck disable=SC2086
"$eingrad" train $long --out new/again --log log.json >out 2>err & pid=$!
started log.json; kill -INT $pid; wait $pid
if ! grep -q 'saved in' out; then same again new/again
elif [ "$(wc -l <log.json)" -lt 2000 ]; then
    bad "an earlier step replaced a later one: $(cat out)"
fi
only HUP INT TERM again nohup pipe

# -- a model of NaN is an error, not a result ------------------------------------------------------
poke() {                                # poke FILE TENSOR BYTES: at its beginning
    n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    at=$(head -c $((8 + n)) "$1" | tail -c "$n" | grep -o "\"$2\":{[^}]*}" |
        sed 's/.*offsets":\[\([0-9]*\),.*/\1/')
    # shellcheck disable=SC2059          # the bytes are escapes
    printf "$3" | dd of="$1" bs=1 seek=$((8 + n + at)) conv=notrunc 2>err
}
# shellcheck disable=SC2086
runs train copy $tiny --steps 3 --out new/x
# shellcheck disable=SC2086
runs train --text "$in/good.tsv" $tiny --context 8 --steps 3 --out new/t; rm new/t-best
poke new/x norm.gain '\000\000\300\177'; poke new/t norm.gain '\000\000\200\177'
bad_gain='parameter "norm.gain" has a NaN or an infinity'
for words in 'evaluate new/x' 'evaluate new/x --each-head' 'predict new/x abc' \
    'attend new/x abc' 'attend new/x abc -o new/m.svg' 'train --resume new/x' \
    'train --resume new/x --steps 4' 'evaluate new/t' 'generate new/t' 'attend new/t a1' \
    'train --resume new/t'; do
    # shellcheck disable=SC2086
    refuses "$bad_gain" $words
done
most='\000\000\177\177'              # finite, but the logits overflow
# shellcheck disable=SC2086
runs train copy $tiny --steps 3 --out new/big
most=$most$most$most$most$most$most$most$most
for tensor in norm.gain norm.bias logits.W; do poke new/big $tensor "$most"; done
refuses 'not finite' evaluate new/big
refuses 'not finite' predict new/big abc
only big t x

# -- a text: learnt, killed, gone on with; generated -----------------------------------------------
cd new || exit 1
k=0; while [ $k -lt 60 ]; do printf 'rage, rage against the dying of the light.\n';
    k=$((k + 1)); done >../rage.txt
text="--layers 1 --d-model 16 --heads 2 --batch 4 --context 16 --steps 60 --evaluate 10"
text="$text --dropout 0.1 --clip 0.5"
# shellcheck disable=SC2086
{
    runs train --text ../rage.txt $text --threads 2 --out whole.safetensors \
        --best best.safetensors --log log.json --curve loss.svg
    if ! grep -q '</svg>' loss.svg || ! grep -q '>unseen</text>' loss.svg; then
        bad 'train --curve: no curves'; fi
    for said in '2580 characters' 'context 16' 'bits a character on 257 unseen ones, perplexity' \
        'A generated text' 'gradient clipped to 0.5 in ' \
        'generate whole.safetensors'; do
        count=$((count + 1))
        grep -qF -- "$said" out || bad "train --text: '$said' is not in $(cat out)"
    done
    grep -q '"unseen_loss"' log.json || bad 'train --text: no unseen loss in the log'
    grep '"lr"' log.json | grep '"unseen_loss"' | grep -qv '"heads"' &&
        bad 'train --text: an unseen loss in the log of a step without an evaluation'
    # 5 evaluations with one loss, then it is stopped early
    runs train --text ../rage.txt $text --group '*: lr-factor 0' --log same.json \
        --out same.safetensors
    [ "$(grep -c '"heads": {' same.json)" = 5 ] ||
        bad 'train --text: an evaluation with the loss of the last one is not in the log'
    rm -f same.json same.safetensors same-best.safetensors
    "$eingrad" train --text ../rage.txt $text --threads 1 --out killed.safetensors --every 1 \
        --log ../log4 >../out4 2>&1 & pid=$!
    started ../log4; kill -KILL $pid; wait $pid 2>/dev/null
    runs train --resume killed.safetensors --threads 2
    same whole.safetensors killed.safetensors
}
runs generate whole.safetensors --length 30 --seed 5; cp out ../first
runs generate whole.safetensors --length 30 --seed 5 --threads 1; same out ../first
[ "$(wc -m <out)" = 31 ] || bad "generate: $(wc -m <out) characters"
prints 'rage, ra' generate best.safetensors --length 3 --prompt 'rage, ra' --beam 3
runs generate whole.safetensors --length 3 --prompt 'the' --temperature 0
runs generate whole.safetensors --length 3 --top-k 2 --top-p 0.5 --temperature 2
prints 'layer 0, head 1' attend whole.safetensors 'rage'
refuses '"z" is not in the vocabulary' generate whole.safetensors --prompt z
refuses '--temperature must be a number from 0 to 1000, not "-1"' generate whole.safetensors \
    --temperature -1
refuses '--temperature must be a number' generate whole.safetensors --temperature nan
refuses '--beam must be an integer from 1 to 4096, not "0"' generate whole.safetensors --beam 0
refuses '--beam does not sample' generate whole.safetensors --beam 3 --temperature 1
refuses '--beam does not sample' generate whole.safetensors --beam 3 --seed 1
refuses '--temperature 0 does not sample' generate whole.safetensors --temperature 0 --top-k 2
refuses '--length-power belongs to --beam' generate whole.safetensors --length-power 2
{ # 64 tokens of i32
    printf '\223NUMPY\001\000v\000%-117s\n' \
        "{'descr': '<i4', 'fortran_order': False, 'shape': (64,), }"
    k=0; while [ $k -lt 16 ]; do printf '\001\000\000\000\002\000\000\000'; k=$((k + 1))
        printf '\003\000\000\000\007\000\000\000'; done
} >tokens.npy
runs train --text tokens.npy --layers 1 --d-model 8 --heads 2 --batch 2 --context 4 --steps 2
prints '1 2 3 ' generate tokens.safetensors --prompt '1 2 3' --length 2
prints '1 2 3 ' generate tokens.safetensors --prompt '1 2 3 ' --length 2
grep -qE '^1 2 3( [1237]){2}$' out || bad "generate of tokens: $(cat out)"
rm tokens*
refuses '--length must be an integer from 1' generate whole.safetensors --length 0
refuses '--top-p must be a number' generate whole.safetensors --top-p 0
refuses 'generate needs a model' generate
refuses 'a prompt comes after --prompt' generate whole.safetensors the
for command in evaluate 'train --resume'; do # a --text that is not there is no hint to say --text
    # shellcheck disable=SC2086
    refuses 'none.txt: No such file or directory' $command whole.safetensors --text none.txt
    grep -q 'gives the new path' err && bad "$command --text none.txt: $(cat err)"
done
refuses 'No such file' generate none.safetensors
prints 'bits a character, perplexity' evaluate whole.safetensors
prints '0.1 ' evaluate whole.safetensors --each-head --text ../rage.txt
refuses 'none.txt: a text of 0' evaluate whole.safetensors --text "$in/none.txt"
refuses 'a model of a text gives no answers; generate continues the text' \
    predict whole.safetensors rage
refuses 'a model of a text gives no answers; generate continues the text' \
    predict whole.safetensors rage --heads-off 0.1
[ "$(printf 'a\nb\n' | "$eingrad" predict whole.safetensors 2>&1 | wc -l)" = 1 ] ||
    bad 'predict: a text: a sentence for each line'
(cd .. && "$eingrad" evaluate new/whole.safetensors >out2 2>err2) &&
    bad 'evaluate: found a text that lies elsewhere'
grep -q 'rage.txt: No such file or directory; --text FILE gives the new path of the text' ../err2 ||
    bad "evaluate: $(cat ../err2)"
(cd .. && "$eingrad" train --resume new/whole.safetensors --steps 70 >out2 2>err2) &&
    bad 'train: found a text that lies elsewhere'
grep -q -- '; --text FILE gives the new path' ../err2 || bad "train --resume: $(cat ../err2)"
# shellcheck disable=SC2086
runs train --text ../rage.txt --layers 1 --d-model 16 --heads 2 --batch 4 --context 16 --steps 40 \
    --evaluate 5 --lr 1 --out worse.safetensors
grep -q 'unseen loss was smallest at step [0-9]*, [0-9.]* bits a character' out ||
    bad "train --text: $(grep smallest out)"
grep -qF 'that model is saved in worse-best.safetensors; worse.safetensors has the last one' out ||
    bad "train --text: the best is not spoken of"
grep -q 'train --resume worse' out &&
    bad 'train --text: more steps are advised although the unseen loss grew'
grep -q '; stopped early' out || bad 'train --text: it goes on although it overfits'
rm worse.safetensors worse-best.safetensors ../out2 ../err2
printf 'more' >>../rage.txt
refuses 'when it had 2580 characters' train --resume whole.safetensors --steps 70
# a .npy of integers is a text of tokens
{ printf '\223NUMPY\001\000\166\000%-117s\n' \
    "{'descr': '|u1', 'fortran_order': False, 'shape': (400,), }"
  k=0; while [ $k -lt 100 ]; do printf '\000\003\001\002'; k=$((k + 1)); done; } >../n.npy
# shellcheck disable=SC2086
prints 'bits a token' train --text ../n.npy --layers 1 --d-model 16 --heads 2 --context 8 \
    --steps 60 --lr 0.01 --out n.safetensors --log n.json
grep -q '^../n.npy: 400 tokens, numbers below 4,' out || bad "train --text n.npy: $(cat out)"
cp ../n.npy ../upper.NPY && cp ../n.npy ../n.npz
prints '../upper.NPY: 400 tokens,' train --text ../upper.NPY --layers 1 --d-model 8 --heads 2 \
    --batch 2 --context 4 --steps 1 --out upper.safetensors --best upper-best.safetensors
# an archive is a text, too, but it is said
prints '../n.npz: an archive, whose bytes are read as a text; tokens are read from a .npy file' \
    train --text ../n.npz --layers 1 --d-model 8 --heads 2 --batch 2 --context 4 --steps 1 \
    --out upper.safetensors --best upper-best.safetensors --force
rm ../upper.NPY ../n.npz upper.safetensors upper-best.safetensors
prints '1 2 0 3 1' generate n.safetensors --prompt '0 3' --length 5 --temperature 0.01
prints 'bits a token, perplexity' evaluate n.safetensors
prints ' of 1 log' curve n.json -o n.svg
grep -qF '>loss (bits a token)</text>' n.svg || bad 'curve: a text is in bits'
rm n.safetensors n-best.safetensors n.json n.svg ../n.npy
rm -f out err; cd ..
only best.safetensors killed-best.safetensors killed.safetensors log.json loss.svg \
    whole.safetensors

# -- encoder and decoder; heads off ----------------------------------------------------------------
# shellcheck disable=SC2086
{
    runs train --pairs "$in/good.tsv" $tiny --steps 8 --dropout 0.1 --model seq2seq \
        --block 3 --out new/both.safetensors
    if ! grep -q 'gradients checked' out || ! grep -q 'cross attention, layer 0, head' out; then
        bad "train --model seq2seq: $(cat out)"; fi
    runs train --pairs "$in/good.tsv" $tiny --steps 4 --dropout 0.1 --model seq2seq \
        --block 3 --out new/early.safetensors
}
prints '' predict new/both.safetensors a7
prints '' generate new/both.safetensors --prompt a7 --beam 3
prints 'layer 0, head 1' attend new/both.safetensors a7
prints 'layer 0, head 1' attend new/both.safetensors a7 --part encoder
grep -q ' self ' out || bad 'attend --part encoder: no share of the own place'
prints 'cross attention: rows attend to columns' attend new/both.safetensors a7
grep -q 'previous\|self\|distance' out && bad 'attend: positions of two sequences are compared'
runs attend new/both.safetensors a7 -o new/map.svg
for text in 'cross attention: a7' 'token written' 'attends to' 0.2 0.4 1; do
    grep -qF ">$text</text>" new/map.svg || bad "attend -o map.svg: '$text' is not in it"
done
rm new/map.svg
prints 'sequences exactly right' evaluate new/both.safetensors --heads-off e0.1,c0.0
prints 'c0.1  ' evaluate new/both.safetensors --each-head
runs predict new/both.safetensors --heads-off d0.0 a7
refuses '--heads-off: there is no head "0.1"; the model has e0.0 to c0.1' \
    evaluate new/both.safetensors --heads-off 0.1
refuses 'there is no head "c0.2"' predict new/both.safetensors --heads-off c0.2 a7
refuses 'there is no head ""' evaluate new/both.safetensors --heads-off e0.1,
refuses 'there is no head "c0.-1"' evaluate new/both.safetensors --heads-off c0.-1
refuses 'exclude each other' evaluate new/both.safetensors --heads-off e0.1 --each-head
refuses 'generate needs --prompt TEXT' generate new/both.safetensors
refuses 'does not sample' generate new/both.safetensors --prompt a7 --seed 3
refuses 'evaluate needs a model' evaluate
refuses 'No such file' evaluate none.safetensors
only both.safetensors early.safetensors

# -- grid: runs side by side -----------------------------------------------------------------------
# VERB [TEXT] COMMAND reverse OPTIONS... of a small model; the four runs of a grid of it
small() { "$@" --d-model 8 --heads 2 --batch 8 --schedule constant --goal 0; }
four() {                                # four VERB TEXT LAYERS [OPTION]: four runs in new/grid
    small "$1" "$2" grid reverse --layers "$3" --steps 12 --seeds 2 --lr 1e-3,3e-3 \
        --out new/grid --jobs 2 ${4:+"$4"}
}
refuses '--lr must be a number from 1e-09 to 10, not "x"' grid reverse --lr 1e-3,x --out new/grid
refuses 'must be divisible by --heads: 8 / 3' grid reverse --d-model 8 --heads 2,3 --out new/grid
refuses '--lr has 0.001 twice' grid reverse --lr 1e-3,0.001 --out new/grid
refuses '--seeds must be' grid reverse --seeds 0 --out new/grid
refuses '--seeds has 3 twice' grid reverse --seeds 3,3 --out new/grid
refuses 'grid has no --seed; see --seeds' grid reverse --seed 3 --out new/grid
refuses 'there is no task "revers"' grid revers --out new/grid
refuses 'one of them' grid --lr 1,2 --out new/grid
refuses 'grid has no option --sead; is it --seeds?' grid reverse --sead 3
refuses 'No such file' grid reverse --out none/grid
only
four prints '4 runs in new/grid, 0 of them finished' 1
grep -q '^lr=0.001  0 of 2   12 (12-12)' out || bad "grid: no line of lr=0.001: $(cat out)"
grep -q '^lr=0.003  0 of 2' out || bad "grid: no line of lr=0.003: $(cat out)"
small runs train reverse --layers 1 --steps 12 --seed 1 --lr 3e-3 --out new/alone.safetensors
same new/alone.safetensors new/grid/lr=0.003,seed=1.safetensors
cp -r new/grid new/before
four prints '4 runs in new/grid, 4 of them finished' 1 --runs
grep -q '^lr=0.003,seed=1  0 of 1 ' out || bad "grid --runs: no line of a run: $(cat out)"
diff -r new/grid new/before >out || bad "grid: finished runs were run again: $(cat out)"
# a run that was interrupted goes on from its checkpoint, to the same bits
rm new/grid/lr=0.003,seed=1.*
small runs train reverse --layers 1 --steps 5 --seed 1 --lr 3e-3 \
    --out new/grid/lr=0.003,seed=1.safetensors --log new/grid/lr=0.003,seed=1.jsonl
sed -i '$d' new/grid/lr=0.003,seed=1.jsonl # as a run that was killed leaves it
four prints '4 runs in new/grid, 3 of them finished' 1
same new/alone.safetensors new/grid/lr=0.003,seed=1.safetensors
grep -q '"step": 5, ' new/grid/lr=0.003,seed=1.jsonl || bad 'grid: it did not go on'
four refuses 'holds another run (layers 1, not 2)' 2
small refuses '--lr must be a number' grid reverse --layers 2 --lr 1e-3,abc --out new/grid
small refuses 'must be divisible by --kv-heads: 2 / 3' grid reverse --layers 2 --kv-heads 1,3 \
    --out new/grid # values that no run can have come before files of another run
small refuses '--score belongs to a softmax' grid reverse --layers 2 --lr 1e-3,2e-3 --linear \
    --score 2*score --out new/grid
cp new/alone.safetensors new/before/lr=0.002,seed=0.safetensors
small refuses 'holds another run' grid reverse --layers 1 --steps 12 --seeds 1 --lr 2e-3,4e-3 \
    --out new/before
echo x >new/before/lr=0.004,seed=0.jsonl
small refuses 'is no log of eingrad train' grid reverse --layers 1 --lr 4e-3,5e-3 --seeds 1 \
    --out new/before
rm new/grid/lr=0.001,seed=0.safetensors
four refuses 'whose checkpoint is gone' 1
rm -r new/grid new/before new/alone.safetensors
only

# a table of logs that are written here: result SEED STEPS SECONDS LOSS UNSEEN-LOSS EXACT, with a
# goal of 0.9 of 1000 sequences
begun() { printf '{"data": "reverse", "goal": 0.9, "step": %s}\n' "$1"; } # begun STEP
step() { printf '{"step": %s, "seconds": %s, "loss": %s}\n' "$@"; }       # step STEP SECONDS LOSS
last() {                                # last STEP SECONDS UNSEEN-LOSS EXACT: the line of the end
    printf '{"step": %s, "seconds": %s, "unseen_loss": %s, "exact": %s, ' "$@"
    printf '"unseen_sequences": 1000}\n'
}
result() {
    { begun 0; step "$2" "$3" "$4"; last "$2" "$3" "$5" "$6"; } >"new/grid/seed=$1.jsonl"
}
table() {                               # table SEEDS LINE...: these lines end the table of a grid
    seeds=$1; shift
    small runs grid reverse --layers 1 --steps 2 --seeds "$seeds" --out new/grid
    printf '%s\n' "$@" | sed 's/   */ | /g' >wanted
    tail -n $# out | sed 's/   */ | /g' | cmp -s wanted - ||
        bad "grid: the table is $(tail -n $# out), not $*"
}
small runs grid reverse --layers 1 --steps 2 --seeds 5 --out new/grid
result 0 425 10 0.1 0.2 950
result 1 900 30 0.5 0.6 100
result 2 400 12 0.3 0.4 1000
result 3 450 8 0.2 0.3 900              # just the goal
result 4 900 31 0.4 0.5 899
# steps and seconds of the three that reached it, losses and answers of all; medians
table 5 'reached   steps   seconds   loss   unseen loss   exact unseen' \
    "3 of 5   425 (400-450)   10.0 (8.0-12.0)   0.3 (0.1-0.5)   0.4 (0.2-0.6)   90.0% \
(10.0%-100.0%)"
table 4,1,2 '1 of 3   400   12.0   0.4 (0.3-0.5)   0.5 (0.4-0.6)   89.9% (10.0%-100.0%)'
# of an even number the mean of the two in the middle; of all where none reached the goal
result 0 800 40 8 9 200
result 1 100 10 1 2 0
result 2 400 20 4 5 100
result 3 200 15 2 3 50
table 4 '0 of 4   300 (100-800)   17.5 (10.0-40.0)   3 (1-8)   4 (2-9)   7.5% (0.0%-20.0%)'
# three processes worked on it: the second from step 5, after 2 s of the first; what that one did
# after it is lost, and a line that it did not end; the third from step 9
{
    begun 0; step 5 2 1; step 7 2.8 0.9; printf '{"step": 8, "sec\n'
    begun 5; step 9 1.5 0.8; begun 9; step 12 3 0.7; last 12 3 0.8 1000
} >new/grid/seed=0.jsonl
table 0,1 '1 of 2   12   6.5   0.85 (0.7-1)   1.4 (0.8-2)   50.0% (0.0%-100.0%)'
# a damaged line with a step that no run has: its seconds are not those of step 0, and it takes no
# memory for the steps before it
cp new/grid/seed=0.jsonl new/seed=0.jsonl
{
    begun 0; step 2000000000 50 1; step 999999999 60 1; begun 0; step 12 3 0.7; last 12 3 0.8 1000
} >new/grid/seed=0.jsonl
table 0,1 '1 of 2   12   3.0   0.85 (0.7-1)   1.4 (0.8-2)   50.0% (0.0%-100.0%)'
mv new/seed=0.jsonl new/grid/seed=0.jsonl
# without a last line, or with a process that began after it, it is not finished and goes on
sed -i '$d' new/grid/seed=1.jsonl
begun 12 >>new/grid/seed=0.jsonl
small prints '3 runs in new/grid, 1 of them finished' grid reverse --layers 1 --steps 2 \
    --seeds 0,1,2 --out new/grid
for seed in 0 1; do
    grep -q "^seed=$seed: 2 steps" out || bad "grid: seed=$seed was not run: $(cat out)"; done
rm -r new/grid

# each run of two lists and two seeds is that of its name, alone; lines in the order of the words
small runs grid reverse --layers 1 --steps 2 --lr 1e-3,3e-3 --label-smoothing 0,0.1 --seeds 7,3 \
    --runs --jobs 3 --out new/grid
for lr in 0.001 0.003; do for smooth in 0 0.1; do for seed in 7 3; do
    name=lr=$lr,label-smoothing=$smooth,seed=$seed
    small runs train reverse --layers 1 --steps 2 --lr $lr --label-smoothing $smooth --seed $seed \
        --threads 1 --force --out new/alone.safetensors
    same new/alone.safetensors "new/grid/$name.safetensors"
    echo "$name"
done; done; done >wanted
"$eingrad" grid reverse --layers 1 --steps 2 --lr 1e-3,3e-3 --label-smoothing 0,0.1 --seeds 7,3 \
    --d-model 8 --heads 2 --batch 8 --schedule constant --goal 0 --runs --out new/grid |
    sed -n 's/^\(lr=[^ ]*\) .*/\1/p' | cmp -s wanted - ||
    bad 'grid --runs: other lines, or another order'
rm -r new/grid new/alone.safetensors

# a wrong value anywhere in a list: nothing is run, and no folder is left
for values in 1e-3,20 1e-3,nan,2e-3 1e-3,-1; do
    refuses '--lr must be a number from 1e-09 to 10' grid reverse --lr "$values" --out new/grid
done
refuses '--heads must be' grid reverse --heads 2,1.5 --out new/grid
refuses '--lr must be from 1 to' grid reverse --lr 1e-3, --out new/grid
refuses '--seeds must be' grid reverse --seeds 3,x --out new/grid
refuses '--seeds must be' grid reverse --seeds 3,-1 --out new/grid
refuses 'grid has no --best: each run has files of its own' grid reverse --best x --out new/grid
refuses 'grid has no --resume; see --out' grid reverse --resume --out new/grid
only

# a run that fails is named, and the others continue
mkdir -p new/grid/seed=1.jsonl
"$eingrad" grid reverse --layers 1 --d-model 8 --heads 2 --batch 8 --goal 0 --steps 2 --seeds 3 \
    --schedule constant --out new/grid >out 2>err
[ $? = 1 ] || bad 'grid: a run failed, and the exit status is not 1'
grep -q '^eingrad: seed=1: .*s a directory' err || bad "grid: not said which failed: $(cat err)"
for seed in 0 2; do
    [ -f new/grid/seed=$seed.safetensors ] || bad "grid: seed=1 failed, and seed=$seed was not made"
done
grep -q '^0 of 3   2 (2-2) ' out || bad "grid: no table of those that finished: $(cat out)"
rm -r new/grid
only
until_there() {                         # until_there FILE...: they are there within 20 s
    for file; do
        tries=0
        until [ -s "$file" ] || [ $tries = 1000 ]; do sleep 0.02; tries=$((tries + 1)); done
    done
}
# a log that is replaced meanwhile is the only error
small "$eingrad" grid reverse --layers 1 --steps 2000 --seeds 1 --out new/grid \
    >out 2>err </dev/null &
until_there new/grid/seed=0.jsonl
mv new/grid/seed=0.jsonl new/log
echo x >new/grid/seed=0.jsonl
wait $! && bad 'grid: a log was replaced, and the exit status is 0'
echo 'eingrad: new/grid/seed=0.jsonl is no log of eingrad train' | cmp -s - err ||
    bad "grid: a log was replaced: $(cat err)"
rm -r new/grid new/log
# the process that starts the grid may ignore the ends of processes
if env --ignore-signal=CHLD true 2>/dev/null; then
    small env --ignore-signal=CHLD "$eingrad" grid reverse --layers 1 --steps 2 --seeds 2 \
        --out new/grid >out 2>err </dev/null || bad "grid without SIGCHLD: $(cat err)"
    rm -r new/grid
fi
only

# a run that is killed is named, and goes on when the grid is run again; a signal to the grid
# ends all
long() {                                # long COMMAND...: a small model trains until it is ended
    "$eingrad" "$@" --layers 1 --d-model 8 --heads 2 --batch 8 --schedule constant --goal 0 \
        --steps 1000000 --every 1 >long.out 2>long.err </dev/null &
}
long grid reverse --seeds 3 --jobs 2 --out new/grid
process=$!
until_there new/grid/seed=0.safetensors new/grid/seed=1.safetensors
run=$(cut -d ' ' -f 1 /proc/$process/task/$process/children)
kill -KILL "$run"
until_there new/grid/seed=2.safetensors # the next takes its place
children=$(cat /proc/$process/task/$process/children)
kill -TERM $process
wait $process; status=$?
count=$((count + 1))
[ $status = 143 ] || bad "grid: exit status $status after SIGTERM, not 143"
grep -q '^eingrad: seed=[01]: ended by signal 9' long.err ||
    bad "grid: not said who was killed: $(cat long.err)"
grep -q '^stopped; the same command continues' long.out ||
    bad "grid: not said that it stopped: $(cat long.out)"
for seed in 0 1 2; do runs evaluate new/grid/seed=$seed.safetensors; done
for run in $children; do
    ! kill -0 "$run" 2>/dev/null || bad "grid: process $run goes on without it"; done
rm -r new/grid
# if the grid is killed, its runs end as after SIGTERM
alive() { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }
long grid reverse --seeds 2 --jobs 2 --out new/grid
process=$!
until_there new/grid/seed=0.safetensors new/grid/seed=1.safetensors
children=$(cat /proc/$process/task/$process/children)
kill -KILL $process
wait $process 2>/dev/null
for run in $children; do
    tries=0
    while alive "$run" && [ $tries -lt 200 ]; do sleep 0.1; tries=$((tries + 1)); done
    ! alive "$run" || { bad "grid: process $run goes on after kill -9"; kill -KILL "$run"; }
done
for seed in 0 1; do runs evaluate new/grid/seed=$seed.safetensors; done
rm -r new/grid

# two processes never write to one file, not even before the first has written it: the file is
# claimed. Otherwise the second process would be the same run, or might replace the file
long train reverse --out new/one.safetensors --best new/best.safetensors --log new/one.jsonl \
    --curve new/one.svg
process=$!
until_there new/one.safetensors
another() {                             # another OPTION FILE [OPTION...]: this file is claimed
    small refuses "$1 $2 is being written by another process" train reverse --layers 1 "$@"
}
another --out new/one.safetensors --steps 1000000
ln -s one.safetensors new/link.safetensors
another --out new/link.safetensors --steps 1 --force
for claimed in '--best new/best.safetensors' '--log new/one.jsonl' '--curve new/one.svg'; do
    # shellcheck disable=SC2086          # option and file
    another $claimed --steps 1 --force --out new/two.safetensors
done
kill -TERM $process
wait $process
runs train reverse --steps 1 --goal 0 --force --out new/link.safetensors
rm -f new/best.safetensors              # --evaluate may not have come yet
only link.safetensors one.jsonl one.safetensors one.svg

# the pairs that a model goes on with are those of its checkpoint
printf 'a\tb\nb\ta\nc\td\nd\tc\n' >new/pairs.tsv
small runs train --pairs new/pairs.tsv --layers 1 --steps 1 --out new/pairs.safetensors
small runs train --pairs new/pairs.tsv --layers 1 --resume new/pairs.safetensors --steps 2
echo 'e	e' >>new/pairs.tsv
prints '1 step, 0.0 s' train --pairs new/pairs.tsv --layers 1 --d-model 8 --heads 1 --batch 8 \
    --goal 0 --steps 1 --seed 7 --force --out new/one.safetensors
grep -q '^decoder, 1 layer, d_model 8, 1 head: ' out || bad "train: one layer: $(cat out)"
rm new/one.safetensors
changed='new/pairs.tsv has changed since new/pairs.safetensors was trained on it'
small refuses "$changed (4 pairs, now 5)" \
    train --pairs new/pairs.tsv --layers 1 --resume new/pairs.safetensors --steps 3
prints 'new/pairs.tsv: 4 pairs' train --resume new/pairs.safetensors --steps 3
# a grid of pairs is called after their file, and has one folder of its own
(cd new &&
    small "$eingrad" grid --pairs pairs.tsv --layers 1 --steps 1 --seeds 2 --jobs 1 >../out &&
    small "$eingrad" grid --pairs=./pairs.tsv --layers 1 --steps 1 --seeds 2 >../out2) ||
    bad 'grid --pairs: failed'
grep -q '^2 runs in pairs-grid, 0 of them finished; 1 at a time$' out ||
    bad "grid --pairs: another folder or number: $(cat out)"
grep -q '^2 runs in pairs-grid, 2 of them finished$' out2 || bad "grid --pairs=FILE: $(cat out2)"
only pairs-grid pairs-grid/seed=0.jsonl pairs-grid/seed=0.safetensors pairs-grid/seed=1.jsonl \
    pairs-grid/seed=1.safetensors pairs.safetensors pairs.tsv

# grids that are refused
echo x >new/file
refuses 'new/file' grid reverse --out new/file
refuses '--lr needs a value' grid reverse --lr
refuses '--ffn has gelu twice' grid reverse --ffn gelu,relu,gelu --out new/grid
refuses '500 seeds of 9 settings are more than 4096 runs' \
    grid reverse --seeds 500 --lr 1e-3,2e-3,3e-3 --heads 1,2,4 --out new/grid
refuses 'options have several values' grid reverse --lr 1e-3,2e-3 --heads 1,2 --layers 1,2 \
    --d-model 8,16 --batch 8,16 --dropout 0,0.1 --warm-up 1,2 --steps 1,2 --width 8,16 \
    --out new/grid
only file

echo "$count runs of the program"
[ "$fails" = 0 ]
