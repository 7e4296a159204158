//! Rust text taken apart: code, comments, and the tokens of the code with their brackets.

/// Two views of a text, each as long as the text: what is not in the view is spaces, so line numbers stay.
pub(crate) struct Views {
    /// Without comments and without the literals of strings and characters.
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

pub(crate) fn split(text: &str) -> Views {
    let blank: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == b'\n' { byte } else { b' ' })
        .collect();
    let (mut code, mut comments) = (blank.clone(), blank);
    let mut at = 0;
    while at < text.len() {
        let (piece, length) = first_piece(&text[at..]);
        let view = match piece {
            Piece::Code => Some(&mut code),
            Piece::Comment => Some(&mut comments),
            Piece::Literal => None,
        };
        if let Some(view) = view {
            view[at..at + length].copy_from_slice(&text.as_bytes()[at..at + length]);
        }
        at += length;
    }
    let utf8 = |view| String::from_utf8(view).expect("pieces end where characters end");
    Views {
        code: utf8(code),
        comments: utf8(comments),
    }
}

/// What `rest`, which is not empty, starts with, and how many bytes of it.
fn first_piece(rest: &str) -> (Piece, usize) {
    if rest.starts_with("//") {
        return (Piece::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Piece::Comment, block_comment_length(rest));
    }
    if rest.starts_with('"') {
        return (Piece::Literal, quoted_length(rest, '"'));
    }
    if rest.starts_with('\'') {
        return match char_length(rest) {
            Some(length) => (Piece::Literal, length),
            None => (Piece::Code, 1),
        };
    }
    let word = word_length(rest);
    if word == 0 {
        return (Piece::Code, rest.chars().next().map_or(0, char::len_utf8));
    }
    match prefixed_literal_length(&rest[..word], &rest[word..]) {
        Some(length) => (Piece::Literal, word + length),
        None => (Piece::Code, word),
    }
}

/// Block comments nest.
fn block_comment_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (at, depth) = (at + 2, depth + 1),
            Some(b"*/") => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if letter == quote && !escaped {
            return at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime or a label.
fn char_length(rest: &str) -> Option<usize> {
    let mut letters = rest.chars().skip(1);
    let first = letters.next()?;
    (first == '\\' || letters.next() == Some('\'')).then(|| quoted_length(rest, '\''))
}

/// The length of the quoted rest of a literal like `b"…"`, `r#"…"#` or `b'…'`, if `word` is its prefix.
fn prefixed_literal_length(word: &str, rest: &str) -> Option<usize> {
    let raw = match word {
        "r" | "br" | "cr" => true,
        "b" if rest.starts_with('\'') => return Some(quoted_length(rest, '\'')),
        "b" | "c" => false,
        _ => return None,
    };
    if !raw {
        return rest.starts_with('"').then(|| quoted_length(rest, '"'));
    }
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &rest[..hashes]);
    Some(
        inside
            .find(&end)
            .map_or(rest.len(), |at| hashes + 1 + at + end.len()),
    )
}

fn word_length(rest: &str) -> usize {
    rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .unwrap_or(rest.len())
}

/// A word, a number, `::`, or any other single character.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is_word(&self) -> bool {
        word_length(&self.text) > 0
    }
}

pub(crate) fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (index, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match word_length(rest) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            found.push(Token {
                text: rest[..length].to_owned(),
                line: index + 1,
            });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Which bracket belongs to which. Angle brackets are no brackets here.
pub(crate) struct Brackets {
    /// For each token, the innermost bracket that is open before it.
    pub(crate) around: Vec<Option<usize>>,
    /// For each bracket, the other one of its pair.
    pub(crate) partner: Vec<Option<usize>>,
    /// The line of the first bracket that has no partner.
    pub(crate) unbalanced: Option<usize>,
}

pub(crate) fn brackets(tokens: &[Token]) -> Brackets {
    let mut found = Brackets {
        around: Vec::new(),
        partner: vec![None; tokens.len()],
        unbalanced: None,
    };
    let mut open: Vec<usize> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let opening = match token.text.as_str() {
            ")" => "(",
            "]" => "[",
            "}" => "{",
            _ => "",
        };
        if !opening.is_empty() {
            match open.pop() {
                Some(other) if tokens[other].text == opening => {
                    (found.partner[at], found.partner[other]) = (Some(other), Some(at));
                }
                _ => found.unbalanced = found.unbalanced.or(Some(token.line)),
            }
        }
        found.around.push(open.last().copied());
        if matches!(token.text.as_str(), "(" | "[" | "{") {
            open.push(at);
        }
    }
    found.unbalanced = found.unbalanced.or(open.first().map(|at| tokens[*at].line));
    found
}

mod snippets {
    use super::*;

    fn words(text: &str) -> String {
        let tokens = tokens(&split(text).code);
        tokens
            .iter()
            .map(|token| token.text.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g /// h"), "a c g");
        assert_eq!(words(r#"a "b \" // c" d "\\" e"#), "a d e");
        assert_eq!(
            words("a r\"b\\\" c r#\"d \" e\"# f br##\"g\"# h\"## i"),
            "a c f i"
        );
        assert_eq!(words(r#"a b"b" c"c" b'd' b'\'' e"#), "a e");
        assert_eq!(words(r"a 'b' '\'' '\\' '\u{2192}' '→' '/' c"), "a c");
        assert_eq!(words(r#"'"' a "'" b"#), "a b");
        assert_eq!(words("\"one\ntwo\" a \"http://b\" c"), "a c");
    }

    #[test]
    fn lifetimes_labels_and_raw_identifiers_are_code() {
        assert_eq!(
            words("<'a, 'b> &'a str 'c: loop"),
            "< ' a , ' b > & ' a str ' c : loop"
        );
        assert_eq!(words("r#type r#\"a\"#"), "r # type");
        assert_eq!(words("a::b:c $crate::d"), "a :: b : c $ crate :: d");
    }

    #[test]
    fn lines_and_lengths_stay() {
        let text = "a /* →\n*/ b \"\n→\n\" c // d\ne";
        let views = split(text);
        assert_eq!(
            (views.code.len(), views.comments.len()),
            (text.len(), text.len())
        );
        let lines: Vec<_> = tokens(&views.code).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 4, 5]);
        assert_eq!(views.comments.lines().nth(3).map(str::trim), Some("// d"));
    }

    #[test]
    fn an_unfinished_text_is_taken_to_its_end() {
        for text in ["/* a", "\"a", "r#\"a\"", "'\\", "'", "b'", "/*/", "a \\"] {
            assert_eq!(split(text).code.len(), text.len());
        }
    }

    #[test]
    fn brackets_find_their_partners() {
        let open = brackets(&tokens("a ( b [ c ] ) { d"));
        assert_eq!(open.around[4], Some(3));
        assert_eq!((open.partner[1], open.partner[6]), (Some(6), Some(1)));
        assert_eq!(open.unbalanced, Some(1));
        assert_eq!(brackets(&tokens("(a)\n(b]")).unbalanced, Some(2));
        assert_eq!(brackets(&tokens("{[()]}")).unbalanced, None);
    }
}
